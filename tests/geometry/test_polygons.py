"""Packed polygons: packing, moving, selecting and measuring."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from shapely.geometry import Polygon

from ocr.geometry.polygons import Polygons, move_points

SQUARE = [[0, 0], [4, 0], [4, 4], [0, 4]]
TRIANGLE = [[10, 10], [16, 10], [10, 18]]

coordinates = st.floats(-2000, 2000, width=32)
point_lists = st.lists(st.tuples(coordinates, coordinates), min_size=3, max_size=14)
pages = st.lists(point_lists, max_size=8)
examples = settings(deadline=None, max_examples=100)


def test_packing_keeps_every_polygon_its_flag_and_its_text() -> None:
    packed = Polygons.pack([SQUARE, np.array([TRIANGLE])], ignore=[False, True], texts=["a", None])

    assert packed.vertices.dtype == np.float32
    assert packed.offsets.tolist() == [0, 4, 7]
    assert packed.ignore.tolist() == [False, True]
    assert packed.texts == ("a", None)
    assert [polygon.tolist() for polygon in packed] == [SQUARE, TRIANGLE]


@examples
@given(pages)
def test_unpacking_gives_back_what_was_packed(polygons: list[list[tuple[float, float]]]) -> None:
    packed = Polygons.pack(polygons)

    assert len(packed) == len(polygons)
    for given_points, points in zip(polygons, packed, strict=True):
        assert np.array_equal(points, np.array(given_points, dtype=np.float32))


def test_a_page_without_polygons_has_empty_measures() -> None:
    nothing = Polygons.pack([])

    assert len(nothing) == 0
    assert list(nothing) == []
    assert nothing.areas.shape == nothing.perimeters.shape == (0,)
    assert nothing.bounds.shape == (0, 4)
    assert nothing.on_page(10, 10).shape == nothing.solid.shape == (0,)
    assert len(nothing.moved(np.eye(3))) == 0
    assert nothing.select(np.zeros(0, dtype=bool)) is nothing


@pytest.mark.parametrize(
    ("vertices", "offsets", "ignore", "texts", "message"),
    [
        (np.zeros((3, 3), np.float32), [0, 3], [False], (), "vertices must be"),
        (np.zeros((3, 2), np.float64), [0, 3], [False], (), "float64"),
        (np.zeros((3, 2), np.float32), [0, 2], [False], (), "offsets must run"),
        (np.zeros((3, 2), np.float32), [1, 3], [False], (), "offsets must run"),
        (np.zeros((3, 2), np.float32), [], [], (), "offsets must run"),
        (np.zeros((3, 2), np.float32), [0, 3], [False, True], (), "ignore flag"),
        (np.zeros((5, 2), np.float32), [0, 3, 5], [False, False], (), "at least three"),
        (np.zeros((3, 2), np.float32), [0, 3], [False], ("a", "b"), "2 texts for 1"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    vertices: NDArray[np.float32], offsets: list[int], ignore: list[bool], texts: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Polygons(vertices, np.array(offsets, dtype=np.int32), np.array(ignore, dtype=bool), texts)


def test_two_points_are_no_polygon() -> None:
    with pytest.raises(ValueError, match="at least three"):
        Polygons.pack([SQUARE, SQUARE[:2]])


@examples
@given(pages, st.floats(0.01, 50), st.floats(-3.2, 3.2), coordinates, coordinates)
def test_an_affine_move_is_the_same_for_each_polygon_alone(
    polygons: list[list[tuple[float, float]]], scale: float, angle: float, x: float, y: float
) -> None:
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    matrix = np.array([[cos, -sin, x], [sin, cos, y], [0, 0, 1]])
    packed = Polygons.pack(polygons, texts=[str(p) for p in range(len(polygons))])

    moved = packed.moved(matrix)

    assert moved.texts == packed.texts
    for before, after in zip(packed, moved, strict=True):
        expected = np.column_stack([before.astype(np.float64), np.ones(len(before))]) @ matrix.T
        np.testing.assert_allclose(after, expected[:, :2], rtol=1e-6, atol=1e-3)


def test_a_perspective_divides_each_vertex_by_its_own_depth() -> None:
    matrix = np.array([[1, 0.2, 3], [0, 1, -2], [0.001, 0.002, 1]])

    moved = move_points(np.array([[100, 50], [0, 0]], dtype=np.float32), matrix)

    np.testing.assert_allclose(moved, [[113 / 1.2, 48 / 1.2], [3, -2]], rtol=1e-6)


def test_a_matrix_with_another_scale_in_its_corner_is_the_same_move() -> None:
    points = np.array([[3, 4], [5, -6]], dtype=np.float32)
    matrix = np.array([[2.0, 0, 1], [0, 2, 0], [0, 0, 1]])

    assert np.array_equal(move_points(points, matrix), move_points(points, 4 * matrix))


def test_selecting_keeps_vertices_flags_and_texts_together() -> None:
    packed = Polygons.pack([SQUARE, TRIANGLE, SQUARE], ignore=[False, True, True], texts=["a", "b", "c"])

    chosen = packed.select(np.array([False, True, True]))

    assert [polygon.tolist() for polygon in chosen] == [TRIANGLE, SQUARE]
    assert chosen.ignore.tolist() == [True, True]
    assert chosen.texts == ("b", "c")
    assert len(packed.select(np.zeros(3, dtype=bool))) == 0


@examples
@given(pages, st.data())
def test_selecting_is_the_same_as_packing_only_those(
    polygons: list[list[tuple[float, float]]], data: st.DataObject
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(polygons), max_size=len(polygons)))

    chosen = Polygons.pack(polygons).select(np.array(keep, dtype=bool))
    expected = Polygons.pack([polygon for polygon, kept in zip(polygons, keep, strict=True) if kept])

    assert np.array_equal(chosen.vertices, expected.vertices)
    assert np.array_equal(chosen.offsets, expected.offsets)


@examples
@given(pages, st.sampled_from([0, 1e4, -1e5]))
def test_areas_perimeters_and_bounds_agree_with_shapely(
    polygons: list[list[tuple[float, float]]], shift: float
) -> None:
    packed = Polygons.pack([np.array(points, dtype=np.float32) + np.float32(shift) for points in polygons])

    for p, points in enumerate(packed):
        shape = Polygon(points.astype(np.float64))
        np.testing.assert_allclose(packed.perimeters[p], shape.length, rtol=1e-9)
        np.testing.assert_allclose(packed.bounds[p], shape.bounds)
        if shape.is_valid:
            np.testing.assert_allclose(packed.areas[p], shape.area, rtol=1e-6, atol=1e-3)


def test_an_area_far_from_the_origin_is_as_exact_as_a_near_one() -> None:
    far = np.array(SQUARE, dtype=np.float32) + np.float32(2**20)

    assert Polygons.pack([far]).areas.tolist() == [16]


def test_only_polygons_with_an_area_are_solid() -> None:
    line = [[0, 0], [5, 5], [9, 9]]
    point = [[3, 3]] * 4
    bow_tie = [[0, 0], [4, 4], [4, 0], [0, 4]]

    assert Polygons.pack([SQUARE, line, point, bow_tie, TRIANGLE]).solid.tolist() == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("x", "y", "reaches"),
    [(0, 0, True), (-4, 0, True), (-4.5, 0, False), (19.5, 0, True), (20, 0, False), (0, 9.5, True), (0, 10, False)],
)
def test_a_polygon_is_on_the_page_if_its_bounds_reach_into_it(x: float, y: float, reaches: bool) -> None:
    moved = Polygons.pack([SQUARE]).moved(np.array([[1, 0, x], [0, 1, y], [0, 0, 1.0]]))

    assert moved.on_page(20, 10).tolist() == [reaches]
