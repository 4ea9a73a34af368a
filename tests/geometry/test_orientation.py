"""EXIF orientations: pixels, points and sizes turn alike, and sizes tell the frame of an annotation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocr.geometry.orientation import apply_orientation, frame_by_geometry, orientation_matrix, upright_size
from ocr.geometry.polygons import move_points

orientations = st.integers(1, 8)
sides = st.integers(1, 40)

# From the EXIF standard: where row 0 and column 0 of the stored page are on the upright one.
ROW_AND_COLUMN_0 = {
    1: ("top", "left"),
    2: ("top", "right"),
    3: ("bottom", "right"),
    4: ("bottom", "left"),
    5: ("left", "top"),
    6: ("right", "top"),
    7: ("right", "bottom"),
    8: ("left", "bottom"),
}
EDGES = {"top": np.s_[0], "bottom": np.s_[-1], "left": np.s_[:, 0], "right": np.s_[:, -1]}


@pytest.mark.parametrize(("orientation", "edges"), ROW_AND_COLUMN_0.items())
def test_each_orientation_is_what_the_exif_standard_says(orientation, edges):
    raw = np.zeros((5, 7, 3), np.uint8)
    raw[0, 1:] += 100
    raw[1:, 0] += 200
    upright = apply_orientation(raw, orientation)
    row, column = (upright[EDGES[edge]][:, 0] for edge in edges)
    assert sorted(row)[1:] == [100] * 6
    assert sorted(column)[1:] == [200] * 4


@given(orientations, sides, sides, st.data())
def test_the_matrix_takes_a_marked_pixel_where_the_turned_image_has_it(orientation, width, height, data):
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    raw = np.zeros((height, width, 3), np.uint8)
    raw[y, x] = (1, 2, 3)
    upright = apply_orientation(raw, orientation)
    assert (upright.shape[1], upright.shape[0]) == upright_size(orientation, width, height)
    matrix = orientation_matrix(orientation, width, height)
    to_x, to_y = move_points(np.array([[x, y]], np.float32), matrix)[0].astype(int)
    assert upright[to_y, to_x].tolist() == [1, 2, 3]
    assert upright.sum() == 6


@settings(max_examples=30)
@given(orientations, sides, sides)
def test_a_turned_page_turns_back(orientation, width, height):
    back = {6: 8, 8: 6}.get(orientation, orientation)
    raw = np.random.default_rng(width * 41 + height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    assert np.array_equal(apply_orientation(apply_orientation(raw, orientation), back), raw)
    there = orientation_matrix(orientation, width, height)
    assert np.array_equal(
        orientation_matrix(back, *upright_size(orientation, width, height)) @ there,
        np.eye(3),
    )


def test_a_claimed_size_decides_the_frame_before_the_bounds_do():
    beyond_raw = np.array([[10, 350]], np.float32)
    assert frame_by_geometry(beyond_raw, 6, (400, 300), (400, 300)) == "raw"
    assert frame_by_geometry(beyond_raw, 6, (400, 300), (300, 400)) == "upright"


def test_without_a_fitting_claim_the_frame_with_fewer_vertices_outside_wins():
    low, right = np.array([[10, 350], [20, 360]], np.float32), np.array([[350, 10], [360, 20]], np.float32)
    for claimed in (None, (800, 600)):
        assert frame_by_geometry(low, 6, (400, 300), claimed) == "upright"
        assert frame_by_geometry(right, 6, (400, 300), claimed) == "raw"
    mostly_right = np.array([[350, 10], [360, 20], [10, 350]], np.float32)
    assert frame_by_geometry(mostly_right, 8, (400, 300)) == "raw"


@pytest.mark.parametrize(
    ("orientation", "raw_size", "vertices"),
    [
        (6, (400, 300), [[10, 10], [290, 290]]),
        (6, (400, 300), [[350, 10], [10, 350]]),
        (6, (400, 400), [[10, 350]]),
        (3, (400, 300), [[350, 10]]),
        (6, (400, 300), np.zeros((0, 2))),
    ],
    ids=["fits both", "leaves both", "square", "same size", "no polygons"],
)
def test_what_sizes_cannot_tell_stays_open(orientation, raw_size, vertices):
    assert frame_by_geometry(np.array(vertices, np.float32), orientation, raw_size, raw_size[:1] * 2) is None
