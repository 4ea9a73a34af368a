"""prefix: the letterbox against Albumentations, the way back to the source page, the fixed part as one call."""

import pickle

import albumentations as A  # noqa: N812
import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rejection import rejects

from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons, move_points
from ocr.pipeline.decode import Decode
from ocr.pipeline.prefix import INTERPOLATIONS, POSITIONS, FixedPart, Letterbox
from ocr.pipeline.sample import Sample

# (width, height): portrait, landscape, smaller than the square, square, the very size, and extreme ratios.
SIZES = [(90, 130), (131, 77), (20, 33), (50, 50), (64, 64), (64, 30), (3, 1000), (1000, 3), (1, 300), (1, 1), (65, 64)]
sides = st.integers(1, 400)


def page_of(width: int, height: int, polygons: Polygons | None = None) -> Sample:
    image = np.random.default_rng(width * 1000 + height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    packed = Polygons.pack([]) if polygons is None else polygons
    return Sample(0, "", "", packed, image=image, shape=(width, height), raw_size=(width, height))


def spread_over(width: int, height: int) -> Polygons:
    """Words over the whole page, one of them leaving it."""
    unit = np.array([[[0, 0], [1, 0], [1, 1], [0, 1]], [[0.2, 0.1], [0.8, 0.2], [0.5, 0.9], [-0.3, 0.5]]])
    return Polygons.pack(unit * (width, height))


def albumentations_letterbox(
    sample: Sample, size: int, position: str, fill: int, interpolation: str
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    area = interpolation == "area"
    compose = A.Compose(
        [
            A.LongestMaxSize(
                max_size=size,
                interpolation=cv2.INTER_LINEAR if area else INTERPOLATIONS[interpolation],
                area_for_downscale="image" if area else None,
            ),
            A.PadIfNeeded(size, size, position=position, border_mode=cv2.BORDER_CONSTANT, fill=fill),
        ],
        keypoint_params=A.KeypointParams(format="xy", remove_invisible=False),
    )
    result = compose(image=sample.image, keypoints=sample.polygons.vertices)
    return result["image"], np.asarray(result["keypoints"], dtype=np.float32).reshape(-1, 2)


def assert_as_albumentations(width: int, height: int, box: Letterbox) -> None:
    sample = page_of(width, height, spread_over(width, height))
    expected_image, expected_points = albumentations_letterbox(
        sample, box.size, box.position, box.fill, box.interpolation
    )

    boxed = box(sample)

    assert boxed.image.dtype == np.uint8
    assert np.array_equal(boxed.image, expected_image)
    assert boxed.dropped_polygons + len(boxed.polygons) == 2
    if len(boxed.polygons) == 2:
        np.testing.assert_allclose(boxed.polygons.vertices, expected_points, atol=1e-4)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("interpolation", list(INTERPOLATIONS))
def test_pixels_and_polygons_equal_albumentations_for_every_size(width: int, height: int, interpolation: str) -> None:
    assert_as_albumentations(width, height, Letterbox(64, interpolation=interpolation))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("fill", [0, 114, 255])
def test_padding_lies_where_albumentations_puts_it(position: str, fill: int) -> None:
    for width, height in ((91, 40), (40, 91)):
        assert_as_albumentations(width, height, Letterbox(61, position, fill))


@given(sides, sides, st.integers(1, 300), st.sampled_from(POSITIONS), st.sampled_from(list(INTERPOLATIONS)))
def test_any_page_equals_albumentations(width: int, height: int, size: int, position: str, interpolation: str) -> None:
    assert_as_albumentations(width, height, Letterbox(size, position, 7, interpolation))


@given(
    st.integers(1, 6000),
    st.integers(1, 6000),
    st.integers(16, 1280),
    st.sampled_from(POSITIONS),
    st.lists(st.tuples(st.floats(-0.2, 1.2), st.floats(-0.2, 1.2)), min_size=3, max_size=14),
)
def test_the_inverse_matrix_brings_every_vertex_back_to_the_source_page(
    width: int, height: int, size: int, position: str, shares: list[tuple[float, float]]
) -> None:
    polygons = Polygons.pack([np.array(shares) * (width, height)])
    # A scaled decode: the polygons live in the full page, and no pixels of it are needed.
    page = Sample(0, "", "", polygons, image=np.zeros((1, 1, 3), np.uint8), reduced_from=(width, height))

    boxed = Letterbox(size, position)(page)

    if len(boxed.polygons):
        back = move_points(boxed.polygons.vertices, boxed.inverse_matrix)
        assert np.abs(back - polygons.vertices).max() < 0.5
    else:
        assert boxed.dropped_polygons == 1


def test_a_page_decoded_at_half_scale_gets_the_polygons_of_the_full_page() -> None:
    full = page_of(301, 203, spread_over(301, 203))
    half = cv2.resize(full.image, (151, 102), interpolation=cv2.INTER_AREA)
    reduced = Sample(0, "", "", full.polygons, image=half, reduced_from=(301, 203), shape=(301, 203))

    boxed, expected = Letterbox(80)(reduced), Letterbox(80)(full)

    assert np.array_equal(boxed.polygons.vertices, expected.polygons.vertices)
    assert np.array_equal(boxed.inverse_matrix, expected.inverse_matrix)
    assert boxed.reduced_from is None


def test_words_that_vanish_or_lie_off_the_page_are_dropped_and_counted() -> None:
    word, speck, outside = [[0, 0], [400, 0], [400, 90]], [[9, 9], [12, 9], [12, 12]], [[-90, 0], [-9, 0], [-9, 40]]

    boxed = Letterbox(64)(page_of(640, 640, Polygons.pack([word, speck, outside], texts=["a", "b", "c"])))

    assert boxed.polygons.texts == ("a",)
    assert boxed.dropped_polygons == 2


def test_a_float_page_stays_float() -> None:
    page = page_of(50, 30)
    shifted = page.image.astype(np.float32) / 255 - 0.5

    boxed = Letterbox(50)(Sample(0, "", "", page.polygons, image=shifted))

    assert boxed.image.dtype == np.float32
    assert np.array_equal(boxed.image[10:40], shifted)


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("size", [0, 640.5, "abc", None, True]),
        ("fill", [300, -1, 1.5]),
        ("position", [None, "centre"]),
        ("interpolation", [["linear"], "linaer"]),
    ],
)
def test_a_setting_that_cannot_work_is_named(setting: str, values: list[object]) -> None:
    for value in values:
        with rejects(ConfigError, setting=f"Letterbox.{setting}", value=value):
            Letterbox(**{setting: value})  # type: ignore[arg-type]


# -- decode and the fixed stages as one value


def stored_page() -> Sample:
    image = np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    word = [[20, 30], [120, 30], [120, 60], [20, 60]]
    return Sample(0, "a.png", "a.png", Polygons.pack([word]), encoded=cv2.imencode(".png", image)[1].tobytes())


def test_the_fixed_part_decodes_a_page_and_runs_its_stages() -> None:
    decode, box = Decode(needed_side=64), Letterbox(64)
    page, expected = FixedPart(decode, (box,))(stored_page()), box(decode(stored_page()))
    assert np.array_equal(page.image, expected.image)
    assert np.array_equal(page.polygons.vertices, expected.polygons.vertices)
    assert page.maps is None


def test_a_measured_page_has_the_geometry_of_the_decoded_one() -> None:
    for needed_side in (64, None):
        part = FixedPart(Decode(needed_side=needed_side), (Letterbox(64),))
        measured, decoded = part.measure(stored_page()), part(stored_page())
        assert np.array_equal(measured.polygons.vertices, decoded.polygons.vertices)
        assert np.array_equal(measured.inverse_matrix, decoded.inverse_matrix)
        assert measured.size == decoded.size == (64, 64)
        # Without a letterbox in front, a stage may look at the pixels.
        assert np.array_equal(measured.image, decoded.image) == (needed_side is None)


def test_the_fixed_part_goes_to_another_process() -> None:
    part = FixedPart(Decode(needed_side=64), (Letterbox(64),))
    assert pickle.loads(pickle.dumps(part)) == part
    assert part.parts == (Decode(needed_side=64), Letterbox(64))
