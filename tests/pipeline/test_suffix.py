"""The random part: polygons stay on their pixels, pixels are sampled once, crops pass between the words."""

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pages import run, run_one_by_one
from rejection import rejects

from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons, move_points
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import NO_IMAGE, Sample
from ocr.pipeline.stage import RandomStage, Stage, sample_generator
from ocr.pipeline.suffix import (
    ColourJitter,
    JpegNoise,
    RandomBlur,
    RandomFlip,
    RandomRotate,
    RandomScale,
    RandomWindow,
    TextAwareCrop,
    Warp,
    merge_geometry,
)

WIDTH, HEIGHT = 128, 112
GEOMETRY: tuple[RandomStage, ...] = (
    RandomFlip(p=0.7),
    RandomRotate(degrees=15, p=0.7),
    RandomScale(p=0.7),
    TextAwareCrop(smallest=0.3, p=0.7),
)
PIXELS = (ColourJitter(p=1), RandomBlur(p=1), JpegNoise(p=1))
seeds = st.integers(0, 2**32 - 1)
chains = st.permutations(GEOMETRY).flatmap(
    lambda stages: st.integers(1, len(stages)).map(lambda count: list(stages[:count]))
)


@st.composite
def central_quads(draw: st.DrawFn) -> NDArray[np.float32]:
    """A turned box in the middle of the page, so that turning and scaling leave it there."""
    half_width, half_height = draw(st.floats(5, 18)), draw(st.floats(4, 8))
    angle = draw(st.floats(-1.6, 1.6))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    centre = (WIDTH / 2 + draw(st.floats(-8, 8)), HEIGHT / 2 + draw(st.floats(-8, 8)))
    corners = np.array([[-half_width, -half_height], [half_width, -half_height], [half_width, half_height]])
    return (np.vstack([corners, [-half_width, half_height]]) @ turn.T + centre).astype(np.float32)


def covered(polygon: NDArray[np.float32], grow: float = 0.0) -> NDArray[np.bool_]:
    """Which pixel centres lie in a polygon grown, or shrunk, by some pixels."""
    ys, xs = np.mgrid[:HEIGHT, :WIDTH]
    inside: NDArray[np.bool_] = shapely.contains_xy(shapely.Polygon(polygon).buffer(grow), xs, ys)
    return inside


def page_of(polygons: Sequence[NDArray[np.float32]], painted: NDArray[np.bool_] | None = None) -> Sample:
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    if painted is not None:
        image[painted] = 255
    packed = Polygons.pack(polygons, texts=[str(p) for p in range(len(polygons))])
    return Sample(0, "", "", packed, image=image, shape=(WIDTH, HEIGHT), raw_size=(WIDTH, HEIGHT))


def noise_page(width: int = WIDTH, height: int = HEIGHT) -> Sample:
    image = np.random.default_rng(5).integers(0, 256, (height, width, 3), dtype=np.uint8)
    word = np.array([[0.4, 0.4], [0.6, 0.4], [0.6, 0.5], [0.4, 0.5]]) * (width, height)
    return Sample(0, "", "", Polygons.pack([word]), image=image, shape=(width, height))


@given(central_quads(), chains, seeds)
def test_a_transformed_polygon_still_covers_the_pixels_it_covered(
    quad: NDArray[np.float32], stages: list[Stage], seed: int
) -> None:
    page = page_of([quad], covered(quad))

    moved = run(merge_geometry(stages), page, np.random.default_rng(seed))

    painted = moved.image[:, :, 0] > 127
    there = move_points(quad, np.linalg.inv(moved.inverse_matrix))
    scale = np.sqrt(abs(np.linalg.det(np.linalg.inv(moved.inverse_matrix)[:2, :2])))
    pixel = 0.75 * max(scale, 1) + 0.5
    assert not (painted & ~covered(there, pixel)).any(), "painted pixels outside the moved polygon"
    assert painted[covered(there, -pixel)].all(), "the inside of the moved polygon is not painted"
    for polygon in moved.polygons:
        np.testing.assert_allclose(polygon, there, atol=0.01)


@given(st.lists(central_quads(), min_size=1, max_size=6), chains, seeds)
def test_the_inverse_matrix_brings_every_vertex_back_through_any_chain(
    quads: list[NDArray[np.float32]], stages: list[Stage], seed: int
) -> None:
    page = page_of(quads)

    moved = run(merge_geometry(stages), page, np.random.default_rng(seed))

    for polygon, text in zip(moved.polygons, moved.polygons.texts, strict=True):
        back = move_points(polygon, moved.inverse_matrix)
        assert np.abs(back - quads[int(str(text))]).max() < 0.5


@pytest.mark.parametrize(("width", "height"), [(128, 112), (127, 64), (640, 640), (33, 1), (1, 1)])
def test_a_flip_mirrors_pixels_and_polygons_exactly(width: int, height: int) -> None:
    page = noise_page(width, height)
    word = np.array([[0, 0], [3, 0], [3, 2], [0, 2]], np.float32)
    page = Sample(0, "", "", Polygons.pack([word]), image=page.image)

    flipped = run([RandomFlip(p=1)], page, np.random.default_rng(0))

    assert np.array_equal(flipped.image, page.image[:, ::-1])
    assert np.array_equal(flipped.inverse_matrix, [[-1, 0, width - 1], [0, 1, 0], [0, 0, 1]])
    if len(flipped.polygons):
        assert np.array_equal(flipped.polygons.vertices, np.column_stack([width - 1 - word[:, 0], word[:, 1]]))


def test_several_geometric_stages_sample_the_pixels_once() -> None:
    steps = (RandomRotate(10, p=1), RandomScale(p=1), RandomFlip(p=1), RandomRotate(20, p=1))
    page = noise_page()
    rng = np.random.default_rng(7)
    total = np.eye(3)
    for step in steps:
        matrix = step.draw(rng, page.view)
        assert matrix is not None
        total = matrix @ total

    merged = merge_geometry(steps)
    moved = run(merged, page, np.random.default_rng(7))

    assert merged == (Warp(steps),)
    by_opencv = cv2.warpAffine(page.image, total[:2], (WIDTH, HEIGHT))
    assert np.abs(np.int16(moved.image) - np.int16(by_opencv)).max() <= 1
    np.testing.assert_allclose(moved.polygons.vertices, page.polygons.moved(total).vertices, atol=1e-3)
    twice = run(steps, page, np.random.default_rng(7))
    np.testing.assert_allclose(twice.inverse_matrix, moved.inverse_matrix, atol=1e-9)
    assert twice.image.std() < moved.image.std(), "sampling again and again blurs"


def test_a_crop_starts_a_warp_and_what_follows_joins_it() -> None:
    flip, turn, crop, blur = RandomFlip(), RandomRotate(), TextAwareCrop(), RandomBlur()

    assert merge_geometry([crop, flip, turn]) == (Warp((flip, turn), crop),)
    assert merge_geometry([turn, crop, flip]) == (Warp((turn,)), Warp((flip,), crop))
    assert merge_geometry([flip, blur, turn]) == (Warp((flip,)), blur, Warp((turn,)))
    assert merge_geometry([]) == ()


def test_a_geometric_stage_alone_does_what_its_warp_does() -> None:
    page = noise_page()
    for stage in (RandomRotate(p=1), TextAwareCrop(smallest=0.2, p=1)):
        alone = run([stage], page, np.random.default_rng(3))
        merged = run(merge_geometry([stage]), page, np.random.default_rng(3))
        assert np.array_equal(alone.image, merged.image)
        assert not np.array_equal(alone.image, page.image)


def test_words_that_lose_their_area_are_dropped_and_counted() -> None:
    word = np.array([[50, 50], [90, 50], [90, 60], [50, 60]], np.float32)
    speck = np.array([[60, 80], [62, 80], [62, 82], [60, 82]], np.float32)

    shrunk = run([RandomScale(0.2, 0.2, p=1)], page_of([word, speck]), np.random.default_rng(0))

    assert shrunk.polygons.texts == ("0",)
    assert shrunk.dropped_polygons == 1


def test_the_same_generator_gives_the_same_page_and_another_epoch_another() -> None:
    stages = merge_geometry([*GEOMETRY, *PIXELS])
    page = noise_page()
    pages = [run(stages, page, sample_generator(0, epoch, 4)) for epoch in (1, 1, 2, 3)]

    assert np.array_equal(pages[0].image, pages[1].image)
    assert np.array_equal(pages[0].inverse_matrix, pages[1].inverse_matrix)
    assert not np.array_equal(pages[0].image, pages[2].image)
    assert not np.array_equal(pages[2].image, pages[3].image)


@pytest.mark.parametrize("stage", PIXELS, ids=lambda stage: type(stage).__name__)
def test_a_pixel_stage_changes_pixels_and_leaves_polygons_alone(stage: RandomStage) -> None:
    page = noise_page()

    changed = run([stage], page, np.random.default_rng(1))

    assert not stage.moves_geometry
    assert changed.polygons is page.polygons
    assert np.array_equal(changed.inverse_matrix, page.inverse_matrix)
    assert changed.image.shape == page.image.shape
    assert changed.image.dtype == np.uint8
    assert not np.array_equal(changed.image, page.image)
    assert np.array_equal(run([stage], page, np.random.default_rng(1)).image, changed.image)


@pytest.mark.parametrize("stage", [*GEOMETRY, *PIXELS, RandomWindow(64), Warp(GEOMETRY[:3], GEOMETRY[3])], ids=repr)
def test_parameters_are_drawn_without_pixels_and_applied_without_randomness(stage: RandomStage) -> None:
    page = noise_page()
    for seed in range(5):
        expected = run([stage], page, np.random.default_rng(seed))
        without_pixels = replace(page, image=NO_IMAGE, reduced_from=page.size)
        parameters = stage.draw(np.random.default_rng(seed), without_pixels.view)
        found = page if parameters is None else stage.apply(page, parameters)
        assert np.array_equal(found.image, expected.image)
        assert np.array_equal(found.polygons.vertices, expected.polygons.vertices)
        assert np.array_equal(found.inverse_matrix, expected.inverse_matrix)


@pytest.mark.parametrize("kind", [*map(type, GEOMETRY), *map(type, PIXELS)])
def test_a_stage_that_is_not_drawn_hands_on_the_very_sample(kind: type) -> None:
    page = noise_page()

    assert kind(p=0).run(page, np.random.default_rng(0)) is page


def test_colour_jitter_of_no_share_changes_nothing() -> None:
    page = noise_page()

    assert np.array_equal(run([ColourJitter(0, 0, 0, p=1)], page, np.random.default_rng(0)).image, page.image)


@pytest.mark.parametrize("seed", range(4))
def test_colour_jitter_does_to_floats_from_0_to_1_what_it_does_to_bytes(seed: int) -> None:
    image = np.random.default_rng(5).integers(0, 256, (8, 9, 3), dtype=np.uint8)
    page = Sample(0, "", "", Polygons.pack([]), image=image, shape=(9, 8))
    stage = ColourJitter(0.5, 0.5, 0.5, p=1)
    colours = stage.draw(np.random.default_rng(seed), page.view)
    of_bytes = stage.apply(page, colours).image
    of_floats = stage.apply(replace(page, image=image.astype(np.float32) / 255), colours).image
    assert np.abs(of_floats * 255 - of_bytes).max() <= 1


def test_brightness_is_drawn_within_its_share() -> None:
    image = np.full((4, 4, 3), 100, np.uint8)
    page = Sample(0, "", "", Polygons.pack([]), image=image)
    levels = [run([ColourJitter(0.3, 0, 0, p=1)], page, np.random.default_rng(seed)).image.mean() for seed in range(40)]

    assert 70 <= min(levels) < 85
    assert 115 < max(levels) <= 130


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (RandomFlip, {"p": 1.5}),
        (RandomFlip, {"p": True}),
        (RandomFlip, {"p": None}),
        (RandomRotate, {"p": -0.1}),
        (RandomRotate, {"degrees": -10}),
        (RandomRotate, {"degrees": 181}),
        (RandomRotate, {"degrees": "a"}),
        (RandomScale, {"smallest": 0.0}),
        (RandomScale, {"largest": float("inf")}),
        (RandomScale, {"smallest": 2.0, "largest": 1.0}),
        (TextAwareCrop, {"smallest": 0.0}),
        (TextAwareCrop, {"smallest": 1.1}),
        (TextAwareCrop, {"tries": 0}),
        (TextAwareCrop, {"tries": 2.5}),
        (RandomWindow, {"size": 0}),
        (RandomWindow, {"size": "a"}),
        (ColourJitter, {"brightness": -1}),
        (ColourJitter, {"contrast": 1.5}),
        (ColourJitter, {"saturation": [0.2]}),
        (RandomBlur, {"sigma": 0.1}),
        (RandomBlur, {"sigma": None}),
        (JpegNoise, {"worst": 90, "best": 40}),
        (JpegNoise, {"worst": 0}),
        (JpegNoise, {"best": 101}),
        (JpegNoise, {"best": 90.5}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_parameter_that_cannot_work_is_rejected_when_the_stage_is_made(
    kind: type, parameters: dict[str, object]
) -> None:
    # Of two that contradict each other, the first is named.
    setting, value = next(iter(parameters.items()))
    with rejects(ConfigError, setting=f"{kind.__name__}.{setting}", value=value):
        kind(**parameters)


def test_what_turns_into_sight_beyond_the_page_is_what_the_letterbox_padded_it_with():
    stages = merge_geometry([Letterbox(64, fill=90), RandomScale(smallest=0.5, largest=0.6, p=1)])
    page = Sample(0, "", "", Polygons.pack([]), image=np.full((80, 40, 3), 90, np.uint8))
    assert (run(stages, page, sample_generator(0, 0, 0)).image == 90).all()


@given(seeds, st.lists(central_quads(), max_size=3))
def test_a_window_keeps_pixels_and_polygons_together_at_full_resolution(seed, quads):
    rng = np.random.default_rng(seed)
    page = page_of(quads)
    page.image[:] = rng.integers(0, 255, page.image.shape)
    window = run([RandomWindow(64)], page, rng)
    assert window.image.shape == (64, 64, 3)
    left, top = (-window.inverse_matrix[:2, 2]).astype(int) * -1
    assert np.array_equal(window.image, page.image[top : top + 64, left : left + 64])
    assert not quads or len(window.polygons) >= 1
    for polygon, text in zip(window.polygons, window.polygons.texts, strict=True):
        assert np.allclose(polygon + np.array([left, top]), quads[int(text)], atol=1e-3)


def test_a_page_smaller_than_the_window_is_left_alone():
    page = page_of([])
    assert RandomWindow(1000).run(page, np.random.default_rng(0)) is page


# -- a second letterbox after geometry: part of the same sampling, as long as it only changes the size


def test_a_second_letterbox_after_geometry_is_part_of_the_same_sampling():
    transform = merge_geometry([Letterbox(128), TextAwareCrop(p=1), RandomRotate(p=1), Letterbox(64), RandomFlip(p=1)])
    assert [type(stage).__name__ for stage in transform] == ["Letterbox", "Warp", "Warp"]
    assert transform[1].size == 64
    image = np.zeros((128, 128, 3), dtype=np.uint8)
    image[40:60, 20:80] = 255
    polygons = Polygons.pack([[[20, 40], [79, 40], [79, 59], [20, 59]]])
    page = Sample(0, "a", "a", polygons, image=image, shape=(128, 128), raw_size=(128, 128))
    moved = run(transform[1:2], page, np.random.default_rng(3))
    assert moved.image.shape == (64, 64, 3)
    # Polygon and pixels went the same way, and the matrix leads back.
    filled = np.zeros((64, 64), dtype=np.uint8)
    cv2.fillPoly(filled, [moved.polygons.vertices.round().astype(np.int32)], 1)
    assert (filled == (moved.image[:, :, 0] > 127)).mean() > 0.97
    np.testing.assert_allclose(moved.polygons.moved(moved.inverse_matrix).vertices, polygons.vertices, atol=1e-3)


def test_a_letterbox_is_left_alone_where_pages_might_not_be_square():
    stages = merge_geometry([RandomFlip(), Letterbox(64)])
    assert [type(stage).__name__ for stage in stages] == ["Warp", "Letterbox"]


def test_a_page_of_the_right_size_is_not_sampled_again_for_its_letterbox():
    warp = merge_geometry([Letterbox(64), RandomFlip(p=0), Letterbox(64)])[1]
    page = Sample(0, "a", "a", Polygons.pack([]), image=np.zeros((64, 64, 3), dtype=np.uint8))
    assert warp.run(page, np.random.default_rng(0)) is page


def test_pages_that_keep_their_shape_become_squares_in_a_stage_of_its_own():
    page, square = Letterbox(128, shape="page"), Letterbox(64, position="bottom_right")
    stages = merge_geometry([page, RandomFlip(p=1), square])
    assert [type(stage).__name__ for stage in stages] == ["Letterbox", "Warp", "Letterbox"]
    assert merge_geometry([page, RandomFlip(p=1), Letterbox(64, shape="page")])[1].shape == "page"


# -- RandomScale(resizes=True): the whole page grows or shrinks, and windows are cut from anywhere on it

NARROW, TALL = 80, 120
CORNERS = [(2, 2, 22, 12), (58, 2, 78, 12), (2, 108, 22, 118), (58, 108, 78, 118)]
RESIZE = RandomScale(0.6, 1.5, p=1, resizes=True)


def page_with_words_in_its_corners() -> Sample:
    image = np.zeros((TALL, NARROW, 3), dtype=np.uint8)
    polygons = []
    for left, top, right, bottom in CORNERS:
        image[top : bottom + 1, left : right + 1] = 255
        polygons.append(np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=np.float32))
    return Sample(0, "", "", Polygons.pack(polygons), image=image, shape=(NARROW, TALL), raw_size=(NARROW, TALL))


def assert_words_are_bright(sample: Sample) -> None:
    for left, top, right, bottom in sample.polygons.bounds:
        x, y = round(float(left + right) / 2), round(float(top + bottom) / 2)
        # A window may cut a word beyond its middle.
        if 0 <= x < sample.width and 0 <= y < sample.height:
            assert sample.image[y, x].min() == 255


@given(st.integers(0, 10_000))
def test_no_word_leaves_a_page_that_is_resized(seed):
    (stage,) = merge_geometry([RESIZE])
    scaled = run([stage], page_with_words_in_its_corners(), np.random.default_rng(seed))
    factor = scaled.width / NARROW
    assert 0.6 - 0.01 <= factor <= 1.5 + 0.01
    assert abs(scaled.height - factor * TALL) <= 1.5
    assert len(scaled.polygons) == 4
    assert_words_are_bright(scaled)
    back = scaled.polygons.moved(scaled.inverse_matrix).bounds
    assert np.allclose(back, CORNERS, atol=1e-3)


def test_by_default_enlarging_cuts_the_borders_and_keeps_the_size():
    (stage,) = merge_geometry([RandomScale(1.5, 1.5, p=1)])
    scaled = run([stage], page_with_words_in_its_corners(), np.random.default_rng(0))
    assert scaled.size == (NARROW, TALL)
    assert len(scaled.polygons) < 4 or (scaled.polygons.bounds[:, :2] < 0).any()


@given(st.integers(0, 10_000))
def test_windows_of_resized_pages_hold_their_words_in_one_pass_too(seed):
    stages = merge_geometry([RandomRotate(3, p=0.5), RESIZE, RandomWindow(48)])
    one_by_one = run_one_by_one(stages, page_with_words_in_its_corners(), np.random.default_rng(seed))
    in_one_pass = run(stages, page_with_words_in_its_corners(), np.random.default_rng(seed))
    assert np.array_equal(one_by_one.image, in_one_pass.image)
    assert one_by_one.size <= (48, 48)
    assert_words_are_bright(one_by_one)


@pytest.mark.parametrize("window", [48, 100])
def test_no_page_is_larger_than_it_was_planned(window):
    stages = merge_geometry([RESIZE, RandomWindow(window)])
    planned = np.array([[NARROW, TALL]])
    for stage in stages:
        planned = stage.sizes_after(planned)
    sizes = [run(stages, page_with_words_in_its_corners(), np.random.default_rng(seed)).size for seed in range(40)]
    assert (np.max(sizes, axis=0) <= planned[0]).all()
    assert planned[0].tolist() == [min(120, window), min(180, window)]
