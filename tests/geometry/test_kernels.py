"""The compiled loops against the libraries they replace, and against themselves uncompiled."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ocr.geometry.kernels import maps as kernels
from ocr.geometry.kernels.maps import (
    _fill_boxes,
    _raise_border_band,
    find_upright_boxes,
    measure_outlines,
    normalize_to_chw,
)
from ocr.geometry.polygons import Polygons
from ocr.pipeline.targets import shrink

SIDE = 48
whole_pixels = st.integers(-20, SIDE + 20).map(float)
halves = st.integers(-40, 2 * SIDE + 40).map(lambda twice: twice / 2)
anywhere = st.floats(-20, SIDE + 20, width=32)
corners = st.one_of(whole_pixels, halves, anywhere)


@contextmanager
def uncompiled() -> Iterator[None]:
    """The small functions inside the kernels as plain Python; compiled kernels must have run before."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_raise_row", "_round", "_unit"):
            patch.setattr(kernels, name, getattr(kernels, name).py_func)
        yield


def box(ax: float, ay: float, cx: float, cy: float, order: int) -> NDArray[np.float32]:
    """The corners of an upright box in one of the eight ways to go round it."""
    points = np.array([[ax, ay], [cx, ay], [cx, cy], [ax, cy]], dtype=np.float32)
    return np.roll(points[::-1] if order >= 4 else points, order % 4, axis=0)


def fill_box(points: NDArray[np.float32], distance: float) -> tuple[bool, NDArray[np.float32], NDArray[np.bool_]]:
    prob_map, thresh_mask = np.zeros((SIDE, SIDE), np.float32), np.zeros((SIDE, SIDE), np.bool_)
    offsets, left_out = np.array([0, len(points)], np.int32), np.zeros(1, np.bool_)
    boxes, found = find_upright_boxes(points.astype(np.int32), offsets, np.array([distance]), left_out)
    _fill_boxes(boxes, prob_map, thresh_mask)
    return bool(found[0]), prob_map, thresh_mask


def clip_box(points: NDArray[np.float32], distance: float) -> tuple[bool, NDArray[np.float32], NDArray[np.bool_]]:
    prob_map, thresh_fill = np.zeros((SIDE, SIDE), np.float32), np.zeros((SIDE, SIDE), np.uint8)
    outline = points.astype(np.int32)
    pieces = shrink(outline, distance)
    for piece in pieces:
        cv2.fillPoly(prob_map, [piece], 1.0)
    if pieces:
        cv2.fillPoly(thresh_fill, [outline], 1)
    return bool(pieces), prob_map, thresh_fill.astype(np.bool_)


def assert_same_drawing(points: NDArray[np.float32], distance: float) -> None:
    drawn, prob_map, thresh_mask = fill_box(points, distance)
    expected_drawn, expected_map, expected_mask = clip_box(points, distance)
    assert drawn == expected_drawn
    assert np.array_equal(prob_map, expected_map)
    assert np.array_equal(thresh_mask, expected_mask)


@settings(max_examples=4 * settings().max_examples)
@given(corners, corners, corners, corners, st.integers(0, 7), st.floats(0.05, 0.95))
def test_an_upright_box_is_drawn_as_clipper_and_fill_poly_draw_it(
    ax: float, ay: float, cx: float, cy: float, order: int, ratio: float
) -> None:
    points = box(ax, ay, cx, cy, order)
    packed = Polygons.pack([points])
    distance = float(packed.areas[0] * (1 - ratio**2) / max(packed.perimeters[0], 1e-9))
    if distance > 0:
        assert_same_drawing(points, distance)


@settings(max_examples=4 * settings().max_examples)
@given(whole_pixels, whole_pixels, whole_pixels, whole_pixels, st.integers(0, 7), st.integers(1, 60))
def test_sides_that_fall_on_a_half_are_rounded_as_clipper_rounds_them(
    ax: float, ay: float, cx: float, cy: float, order: int, quarters: int
) -> None:
    assert_same_drawing(box(ax, ay, cx, cy, order), quarters / 4)


@pytest.mark.parametrize(
    "points",
    [
        [[10, 10], [30, 11], [30, 20], [10, 20]],
        [[10, 10], [30, 10], [10, 20], [30, 20]],
        [[10, 10], [10, 10], [30, 20], [30, 20]],
        [[10, 10], [30, 10], [30, 10], [10, 10]],
        [[10, 10], [30, 10], [30, 20]],
        [[10, 10], [20, 10], [30, 10], [30, 20], [10, 20]],
    ],
    ids=["slanted", "crossed", "folded", "flat", "triangle", "five points"],
)
def test_what_is_not_an_upright_box_is_left_to_clipper(points: list[list[int]]) -> None:
    drawn, prob_map, thresh_mask = fill_box(np.array(points, np.float32), 2)

    assert not drawn
    assert not prob_map.any()
    assert not thresh_mask.any()


def test_a_box_that_is_left_out_is_not_found() -> None:
    whole = np.array([[5, 5], [30, 5], [30, 20], [5, 20]], np.int32)

    boxes, found = find_upright_boxes(whole, np.array([0, 4]), np.array([2.0]), np.array([True]))

    assert found.tolist() == [False]
    assert not len(boxes)


def test_boxes_are_the_same_compiled_and_uncompiled() -> None:
    boxes = [box(-6, -3, 20, 12, 0), box(25, 30, 60, 44, 5), box(3, 20, 4.5, 40, 2), box(8, 8, 9, 9, 1)]
    packed = Polygons.pack([*boxes, [[1, 2], [9, 3], [4, 8]]])
    distances = packed.areas * 0.84 / packed.perimeters
    results = []
    for find, fill, mode in (
        (find_upright_boxes, _fill_boxes, nullcontext()),
        (find_upright_boxes.py_func, _fill_boxes.py_func, uncompiled()),
    ):
        prob_map, thresh_mask = np.zeros((SIDE, SIDE), np.float32), np.zeros((SIDE, SIDE), np.bool_)
        left_out = np.zeros(len(packed), np.bool_)
        whole = packed.vertices.astype(np.int32)
        with mode:
            boxes_found, found = find(whole, packed.offsets, distances, left_out)
            fill(boxes_found, prob_map, thresh_mask)
        results.append((found, prob_map, thresh_mask))

    assert results[0][0].tolist() == [True, True, False, True, False]
    for compiled, plain in zip(*results, strict=True):
        assert np.array_equal(compiled, plain)


@pytest.mark.parametrize("vertices", [3, 4, 8, 9, 40, 300])
def test_outlines_are_measured_as_numpy_measures_them(vertices: int) -> None:
    rng = np.random.default_rng(vertices)
    polygons = Polygons.pack([rng.uniform(-50, 700, (vertices, 2)) for _ in range(20)])

    areas, perimeters = measure_outlines(polygons.vertices, polygons.offsets)

    if vertices <= 8:
        assert np.array_equal(areas, polygons.areas)
        assert np.array_equal(perimeters, polygons.perimeters)
    np.testing.assert_allclose(areas, polygons.areas, rtol=1e-12)
    np.testing.assert_allclose(perimeters, polygons.perimeters, rtol=1e-14)


def test_the_border_band_is_the_same_compiled_and_uncompiled() -> None:
    polygons = Polygons.pack(
        [
            [[3.2, 4.1], [20.7, 6.3], [19, 15.5], [2, 12]],
            [[-9, 20], [15, 24], [15, 24], [12, 50]],
            [[30, 2], [44, 2], [44, 9], [30, 9]],
            [[30, 30], [40, 30], [40, 40], [30, 40]],
        ]
    )
    distances = np.array([2.5, 3.1, 1.4, 0.0])
    maps = [np.full((SIDE, SIDE), 0.3, np.float32) for _ in range(2)]

    _raise_border_band(polygons.vertices, polygons.offsets, distances, 0.3, 0.7, maps[0])
    with uncompiled():
        _raise_border_band.py_func(polygons.vertices, polygons.offsets, distances, 0.3, 0.7, maps[1])

    np.testing.assert_allclose(maps[0], maps[1], atol=1e-6)
    assert maps[0].max() == pytest.approx(0.7, abs=1e-6)
    assert (maps[0][28:, 28:] == np.float32(0.3)).all(), "a distance of 0 leaves a polygon out"


@pytest.mark.parametrize("kernel", [normalize_to_chw, normalize_to_chw.py_func], ids=["compiled", "uncompiled"])
def test_normalising_takes_off_the_mean_and_multiplies_in_float32(kernel: object) -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    mean, factor = np.array([120.5, 110, 100], np.float32), np.array([0.01, 0.02, 0.03], np.float32)
    out = np.empty((3, 7, 5), np.float32)

    kernel(image, mean, factor, out)  # type: ignore[operator]

    assert np.array_equal(out, ((image.astype(np.float32) - mean) * factor).transpose(2, 0, 1))
