"""The maps against the reference formula, the masks of the loss, and maps from files."""

import logging
import multiprocessing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rejection import rejects
from sameness import assert_same

from benchmarks.reference import reference_maps
from ocr.errors import ConfigError
from ocr.formats.maps import map_file, write_maps
from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.targets import ON_DISK, StoredTargets, Targets, maps_fingerprint

SIDE = 96
# Thin text is masked, not drawn, which the reference does not know: for a comparison nothing is too thin.
EVERYTHING = Targets(min_text_size=0)
WORD = [[20, 30], [70, 32], [69, 50], [19, 47]]
seeds = st.integers(0, 2**32 - 1)


def draw(polygons: list[NDArray[np.float32]], targets: Targets = EVERYTHING, ignore: list[bool] | None = None) -> Maps:
    return targets.draw(Polygons.pack(polygons, ignore), SIDE, SIDE)


def filled(polygon: object) -> NDArray[np.bool_]:
    outline = np.asarray(polygon, np.float32).reshape(-1, 2).astype(np.int32)
    return cv2.fillPoly(np.zeros((SIDE, SIDE), np.uint8), [outline], 1).astype(np.bool_)


def assert_as_reference(polygons: list[NDArray[np.float32]], tolerance: float = 1e-5) -> Maps:
    maps = draw(polygons)
    prob_map, thresh_map = reference_maps(polygons, SIDE, SIDE)
    assert np.array_equal(maps["prob_map"], prob_map)
    np.testing.assert_allclose(maps["thresh_map"], thresh_map, atol=tolerance)
    return maps


def quad(rng: np.random.Generator) -> NDArray[np.float64]:
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * rng.uniform(8, 50, 2)
    return corners + rng.uniform(-3, 3, (4, 2)) + rng.uniform(-10, 80, 2)


def turned_box(rng: np.random.Generator) -> NDArray[np.float64]:
    width, height = rng.uniform(10, 60), rng.uniform(4, 20)
    angle = rng.uniform(-np.pi, np.pi)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (width, height)) @ turn.T + rng.uniform(0, SIDE, 2)


def curved(rng: np.random.Generator) -> NDArray[np.float64]:
    """8 to 14 points along an arc, there on one side and back on the other."""
    angles = np.linspace(-1, 1, int(rng.integers(4, 8))) * rng.uniform(0.4, 1.4)
    radius, thickness = rng.uniform(20, 60), rng.uniform(5, 14)
    arc = np.column_stack([np.sin(angles), -np.cos(angles)])
    return np.vstack([arc * (radius + thickness), arc[::-1] * radius]) + rng.uniform(20, 80, 2)


def concave(rng: np.random.Generator) -> NDArray[np.float64]:
    """A star: its corners turn inwards and outwards."""
    count = int(rng.integers(4, 8)) * 2
    angles = np.arange(count) * 2 * np.pi / count + rng.uniform(0, 1)
    radii = np.where(np.arange(count) % 2, rng.uniform(6, 14), rng.uniform(18, 40))
    return np.column_stack([np.cos(angles), np.sin(angles)]) * radii[:, None] + rng.uniform(10, 80, 2)


def self_touching(rng: np.random.Generator) -> NDArray[np.float64]:
    """Two triangles that share a corner."""
    x, y = rng.uniform(25, 70, 2)
    a, b = rng.uniform(10, 25, 2)
    return np.array([[x, y], [x - a, y - b], [x - a, y + b], [x, y], [x + b, y + a], [x + b, y - a]])


@pytest.mark.parametrize("shape", [quad, turned_box, curved, concave, self_touching], ids=lambda make: make.__name__)
def test_maps_of_a_shape_equal_the_reference(shape: object) -> None:
    drawn = 0
    for seed in range(40):
        drawn += assert_as_reference([shape(np.random.default_rng(seed)).astype(np.float32)])["prob_map"].any()  # type: ignore[operator]

    assert drawn > 20


@given(seeds, st.integers(2, 12))
def test_maps_of_many_words_on_a_page_equal_the_reference(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = (quad, turned_box, curved, concave)

    assert_as_reference([shapes[int(rng.integers(4))](rng).astype(np.float32) for _ in range(count)])


@pytest.mark.parametrize("ratio", [0.2, 0.4, 0.7])
def test_maps_of_other_parameters_equal_the_reference(ratio: float) -> None:
    word = np.array(WORD, np.float32)

    maps = draw([word], Targets(ratio, 0.1, 0.9, min_text_size=0))
    prob_map, thresh_map = reference_maps([word], SIDE, SIDE, ratio, 0.1, 0.9)

    assert np.array_equal(maps["prob_map"], prob_map)
    np.testing.assert_allclose(maps["thresh_map"], thresh_map, atol=1e-5)


def test_a_dumbbell_splits_into_two_pieces_and_both_are_drawn() -> None:
    dumbbell = [[10, 20], [40, 20], [40, 33], [60, 33], [60, 20], [90, 20]]
    dumbbell += [[90, 50], [60, 50], [60, 37], [40, 37], [40, 50], [10, 50]]

    maps = assert_as_reference([np.array(dumbbell, np.float32)])

    assert cv2.connectedComponents(maps["prob_map"].astype(np.uint8))[0] == 3, "background and two pieces"
    assert maps["prob_mask"].all()


def test_an_hourglass_is_drawn_as_the_reference_draws_it() -> None:
    hourglass = np.array([[20, 10], [80, 10], [51, 45], [80, 80], [20, 80], [49, 45]], np.float32)

    maps = assert_as_reference([hourglass])

    assert cv2.connectedComponents(maps["prob_map"].astype(np.uint8))[0] == 3


@pytest.mark.parametrize("foot", [60, 61], ids=["upright box", "slanted"])
def test_a_word_that_vanishes_when_shrunk_is_masked_out(foot: float) -> None:
    # Cut to whole pixels it is one wide, and D is that of its full width.
    sliver = np.array([[10, 10], [11.9, 10], [11.9, foot], [10, 60]], np.float32)

    maps = assert_as_reference([sliver])

    assert not maps["prob_map"].any()
    assert np.array_equal(~maps["prob_mask"], filled(sliver))
    assert not maps["thresh_mask"].any()


@pytest.mark.parametrize(("x", "y"), [(-60, 0), (60, 0), (0, -45), (0, 60), (-30, -40), (70, 70)])
@pytest.mark.parametrize("upright", [True, False])
def test_a_word_that_leaves_the_page_is_drawn_as_far_as_it_is_on_it(x: float, y: float, upright: bool) -> None:
    word = np.array([[20, 30], [70, 30], [70, 50], [20, 50]] if upright else WORD, np.float32)

    maps = assert_as_reference([word + np.float32([x, y])])

    assert (maps["thresh_map"] > 0.31).any()
    assert maps["prob_mask"].all()


@pytest.mark.parametrize(("x", "y"), [(-500, 0), (500, 0), (0, -500), (0, 500)])
def test_a_word_wholly_outside_leaves_empty_maps(x: float, y: float) -> None:
    for word in (WORD, [[20, 30], [70, 30], [70, 50], [20, 50]]):
        maps = assert_as_reference([np.array(word, np.float32) + np.float32([x, y])])
        assert not maps["prob_map"].any()
        assert maps["prob_mask"].all()
        assert not maps["thresh_mask"].any()


def test_ignored_text_is_masked_out_of_both_losses() -> None:
    other = np.array([[5, 70], [60, 70], [60, 85], [5, 85]], np.float32)

    maps = draw([np.array(WORD, np.float32), other], Targets(), ignore=[True, False])
    alone = draw([other], Targets())

    assert np.array_equal(maps["prob_map"], alone["prob_map"])
    assert np.array_equal(maps["thresh_map"], alone["thresh_map"])
    assert np.array_equal(~maps["prob_mask"], filled(WORD))
    assert not (maps["thresh_mask"] & filled(WORD)).any()
    assert np.array_equal(maps["thresh_mask"], alone["thresh_mask"] & ~filled(WORD))


def test_an_ignored_region_over_a_word_takes_it_out_there() -> None:
    word = np.array(WORD, np.float32)
    region = np.array([[40, 20], [90, 20], [90, 60], [40, 60]], np.float32)

    maps = draw([word, region], Targets(), ignore=[False, True])

    assert not maps["prob_mask"][filled(region)].any()
    assert not maps["thresh_mask"][filled(region)].any()
    assert maps["prob_mask"][filled(word) & ~filled(region)].all()


@pytest.mark.parametrize("angle", [0, 0.3, 1.2])
def test_text_under_the_smallest_size_is_masked_and_the_next_size_is_not(angle: float) -> None:
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    def line(height: float) -> NDArray[np.float32]:
        box = np.array([[-20, -height / 2], [20, -height / 2], [20, height / 2], [-20, height / 2]])
        return (box @ turn + 48).astype(np.float32)

    thin, thick = draw([line(7.5)], Targets(min_text_size=8)), draw([line(8.5)], Targets(min_text_size=8))

    assert not thin["prob_map"].any()
    assert np.array_equal(~thin["prob_mask"], filled(line(7.5)))
    assert not thin["thresh_mask"].any()
    assert (thin["thresh_map"] == np.float32(0.3)).all()
    assert thick["prob_map"].any()
    assert thick["prob_mask"].all()


def test_the_threshold_mask_is_the_word_and_the_band_around_it() -> None:
    word = np.array(WORD, np.float32)

    maps = draw([word])

    assert maps["thresh_mask"][filled(word)].all()
    assert np.array_equal(maps["thresh_mask"], filled(word) | (maps["thresh_map"] > np.float32(0.3)))


def test_of_two_overlapping_words_the_larger_threshold_counts() -> None:
    first, second = np.array(WORD, np.float32), np.array(WORD, np.float32) + np.float32([8, 10])

    both = draw([first, second])

    assert np.array_equal(both["thresh_map"], np.maximum(draw([first])["thresh_map"], draw([second])["thresh_map"]))
    assert np.array_equal(both["prob_map"], np.maximum(draw([first])["prob_map"], draw([second])["prob_map"]))


def test_a_figure_of_eight_without_an_area_is_masked_out() -> None:
    bow_tie = np.array([[10, 10], [50, 40], [50, 10], [10, 40]], np.float32)

    maps = assert_as_reference([bow_tie])

    assert not maps["prob_map"].any()
    assert np.array_equal(~maps["prob_mask"], filled(bow_tie))


coordinates = st.one_of(
    st.floats(-1e5, 1e5, width=32), st.floats(-10, SIDE + 10, width=32), st.integers(-5, 100), st.just(0.0)
)
any_points = st.lists(st.tuples(coordinates, coordinates), min_size=3, max_size=20)
repeated = st.tuples(st.tuples(coordinates, coordinates), st.integers(3, 20)).map(lambda drawn: [drawn[0]] * drawn[1])
collinear = st.tuples(coordinates, coordinates, st.lists(st.floats(-50, 50), min_size=3, max_size=20)).map(
    lambda drawn: [(drawn[0] + step, drawn[1] - 2 * step) for step in drawn[2]]
)
tiny = st.tuples(coordinates, coordinates).map(lambda at: [at, (at[0] + 1e-3, at[1]), (at[0], at[1] + 1e-3)])


@given(st.lists(st.one_of(any_points, repeated, collinear, tiny), max_size=5), st.data())
def test_random_polygons_never_crash_the_maps(polygons: list[list[tuple[float, float]]], data: st.DataObject) -> None:
    ignore = data.draw(st.lists(st.booleans(), min_size=len(polygons), max_size=len(polygons)))

    maps = draw([np.array(points, np.float32) for points in polygons], Targets(), ignore)

    assert set(np.unique(maps["prob_map"])) <= {0, 1}
    assert np.isfinite(maps["thresh_map"]).all()
    assert maps["thresh_map"].min() >= np.float32(0.3)
    assert maps["thresh_map"].max() <= np.float32(0.7) + 1e-6


@given(any_points)
def test_any_polygon_is_drawn_as_the_reference_draws_it(points: list[tuple[float, float]]) -> None:
    polygon = np.array(points, np.float32)
    packed = Polygons.pack([polygon])
    if packed.areas[0] > packed.perimeters[0]:
        # Edges as long as the coordinates allow cost float32 some of its digits; 0.03 is what training can bear.
        assert_as_reference([polygon], tolerance=0.03)


@pytest.mark.parametrize("axis", [0, 1], ids=["right side", "lower side"])
@pytest.mark.parametrize(("end", "lines"), [(2, 0), (3, 2), (4, 3)])
def test_a_side_shrunk_to_a_half_pixel_is_rounded_away_from_zero(axis, end, lines):
    # 20 x 10 pixels, so D is 2.5: the side ends at -0.5, which is column -1, at 0.5 and at 1.5.
    box = np.array([[end - 20, 20], [end, 20], [end, 30], [end - 20, 30]], np.float32)
    box = box if axis == 0 else box[::-1, ::-1].copy()
    prob_map = Targets(0.5, min_text_size=0).draw(Polygons.pack([box]), 64, 64)["prob_map"]
    assert np.array_equal(prob_map, reference_maps([box], 64, 64, 0.5, 0.3, 0.7)[0])
    assert prob_map.any(axis=axis).sum() == lines


def test_a_page_without_words_teaches_that_there_is_none() -> None:
    maps = draw([])

    assert not maps["prob_map"].any()
    assert maps["prob_mask"].all()
    assert (maps["thresh_map"] == np.float32(0.3)).all()


def test_a_page_without_an_annotation_teaches_nothing() -> None:
    page = Sample(0, "", "", Polygons.pack([]), annotated=False, image=np.zeros((8, 9, 3), np.uint8))

    drawn = Targets()(page)

    assert drawn.maps is not None
    assert drawn.maps["prob_map"].shape == (8, 9)
    assert not drawn.maps["prob_mask"].any()
    assert not drawn.maps["thresh_mask"].any()
    assert drawn.map_source == "drawn"


@pytest.mark.parametrize(
    ("parameters", "setting"),
    [
        ({"shrink_ratio": 1.0}, "shrink_ratio"),
        ({"shrink_ratio": 0.0}, "shrink_ratio"),
        ({"shrink_ratio": "x"}, "shrink_ratio"),
        ({"thresh_min": 0.7, "thresh_max": 0.3}, "thresh_min"),
        ({"thresh_min": 0.5, "thresh_max": 0.5}, "thresh_min"),
        ({"thresh_max": 1.2}, "thresh_max"),
        ({"thresh_min": None}, "thresh_min"),
        ({"min_text_size": "abc"}, "min_text_size"),
        ({"min_text_size": -1}, "min_text_size"),
        ({"min_text_size": float("nan")}, "min_text_size"),
    ],
    ids=str,
)
def test_parameters_that_cannot_work_are_named(parameters: dict[str, Any], setting: str) -> None:
    with rejects(ConfigError, setting=f"Targets.{setting}", value=parameters[setting]):
        Targets(**parameters)


# -- vertices that no integer can hold

OUTLINES = (
    lambda far: [[0, 0], [far, 0], [0, far]],
    lambda far: [[0, 0], [far, 0], [far, far], [0, far]],
    lambda far: [[-far, -far], [far, -far], [far, far], [-far, far]],
    lambda far: [[10, 10], [far, 12], [50, 30], [10, 30]],
    lambda far: [[10, 10], [-far, 12], [50, 30], [10, 30]],
    lambda far: [[10, -far], [50, -far], [51, far], [11, far]],
)


def draw_far_vertices() -> None:
    for far in (1e7, 1e10, 1e15, 1e19, 1e30, float("inf"), float("nan")):
        for outline, ignore in product(OUTLINES, (False, True)):
            maps = Targets().draw(Polygons.pack([outline(far)], [ignore]), 96, 64)
            assert np.isfinite(maps["thresh_map"]).all()
            assert maps["thresh_map"].min() >= np.float32(0.3)
            assert maps["thresh_map"].max() <= np.float32(0.7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_maps_of_vertices_beyond_every_integer_are_drawn_without_leaving_their_arrays():
    # In a process of its own: what is wrong here is not an exception but a segmentation fault.
    child = multiprocessing.get_context("fork").Process(target=draw_far_vertices)
    child.start()
    child.join()
    assert child.exitcode == 0


# -- maps from files: used where they fit the page exactly


@pytest.fixture
def page() -> Sample:
    word = [[5, 6], [40, 6], [40, 18], [5, 18]]
    return Sample(0, "a.jpg", "", Polygons.pack([word]), image=np.zeros((30, 50, 3), np.uint8))


@pytest.fixture
def stored(page: Sample, tmp_path: Path) -> StoredTargets:
    """Maps on disk that no drawing would give, so that it shows where they come from."""
    maps = Targets().draw(page.polygons, page.width, page.height)
    maps["prob_map"][0, 0] = 1
    kept = {name: array.astype(ON_DISK[name]) for name, array in maps.items()}
    write_maps(map_file(tmp_path, "a.jpg"), kept, maps_fingerprint(page, Targets()))
    return StoredTargets(Targets(), tmp_path)


def test_maps_that_fit_are_taken_from_their_file(page: Sample, stored: StoredTargets) -> None:
    taken = stored(page)

    assert taken.maps is not None
    assert taken.map_source == "stored"
    assert taken.maps["prob_map"][0, 0] == 1
    assert taken.maps["thresh_mask"].dtype == np.bool_


def test_a_page_without_stored_maps_gets_them_drawn(page: Sample, stored: StoredTargets) -> None:
    assert stored(replace(page, filename="b.jpg")).map_source == "drawn"


@pytest.mark.parametrize("change", ["moved", "ignored", "unannotated", "resized", "other parameters"])
def test_maps_of_anything_else_are_rejected_and_drawn(
    change: str, page: Sample, stored: StoredTargets, caplog: pytest.LogCaptureFixture
) -> None:
    polygons = page.polygons
    other = {
        "moved": replace(page, polygons=polygons.moved(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1.0]]))),
        "ignored": replace(page, polygons=replace(polygons, ignore=~polygons.ignore)),
        "unannotated": replace(page, annotated=False),
        "resized": replace(page, image=np.zeros((31, 50, 3), np.uint8)),
    }.get(change, page)
    stage = replace(stored, targets=Targets(0.5)) if change == "other parameters" else stored

    with caplog.at_level(logging.WARNING):
        drawn = stage(other)

    expected = stage.targets(other).maps
    assert drawn.map_source == "stale"
    assert drawn.maps is not None
    assert expected is not None
    assert_same(drawn.maps, expected)
    assert "preprocess_maps.py" in caplog.text
    assert "a.npz" in caplog.text


def test_a_broken_map_file_is_named_and_the_maps_are_drawn(
    page: Sample, stored: StoredTargets, caplog: pytest.LogCaptureFixture
) -> None:
    map_file(stored.folder, "a.jpg").write_bytes(b"PK not really")

    with caplog.at_level(logging.WARNING):
        drawn = stored(page)

    assert drawn.map_source == "stale"
    assert "a.npz" in caplog.text


def test_the_stage_shows_its_parameters_and_no_path(stored: StoredTargets) -> None:
    assert repr(stored) == f"StoredTargets({Targets()!r})"
