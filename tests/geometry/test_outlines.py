"""The compiled steps from map to box against the libraries they replace, compiled and as plain Python."""

from itertools import pairwise

import cv2
import numpy as np
import pyclipper
import pytest
import shapely
from numba.core.dispatcher import Dispatcher

from ocr.geometry.kernels import boxes as box_kernels
from ocr.geometry.kernels import fill, offset, outlines, rectangle

MODULES = (fill, offset, outlines, rectangle, box_kernels)


@pytest.fixture(params=["compiled", "plain"])
def rounds(request, monkeypatch):
    """How many random cases to try; as plain Python fewer, because it is slow."""
    if request.param == "compiled":
        return 400
    for module in MODULES:
        for name, value in list(vars(module).items()):
            if isinstance(value, Dispatcher):
                monkeypatch.setattr(module, name, value.py_func)
    return 12


def blobs(rng, height=50, width=70):
    noise = cv2.GaussianBlur(rng.random((height, width)).astype(np.float32), (0, 0), float(rng.uniform(0.4, 2.5)))
    return (noise - noise.min()) / (noise.max() - noise.min())


def outlines_of(prob_map, thresh):
    marks = outlines.blank_marks(*prob_map.shape)
    assert outlines.binarize(prob_map, thresh, marks)
    points, starts = outlines.trace_outlines(marks)
    return [points[start:end] for start, end in pairwise(starts)]


def test_outlines_are_the_outer_contours_of_OpenCV(rounds):
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        prob_map, thresh = blobs(rng), np.float32(rng.uniform(0.3, 0.7))
        contours, tree = cv2.findContours((prob_map > thresh).astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
        outer = [contour[:, 0].tolist() for contour, node in zip(contours, tree[0], strict=True) if node[3] < 0]
        assert sorted(outline.tolist() for outline in outlines_of(prob_map, thresh)) == sorted(outer)


def test_more_points_and_outlines_than_there_is_room_for_at_first_are_kept(rounds):
    checkered = np.zeros((61, 61) if rounds < 100 else (201, 201), dtype=np.float32)
    checkered[::2, ::2] = 1
    assert len(outlines_of(checkered, 0.5)) == ((len(checkered) + 1) // 2) ** 2


def test_an_outline_is_thinned_out_as_OpenCV_does_it(rounds):
    rng = np.random.default_rng(1)
    for case in range(rounds):
        for outline in outlines_of(blobs(rng), 0.5):
            tolerance = 0.002 * cv2.arcLength(outline, True) if case % 2 else float(rng.uniform(0.3, 4))
            expected = cv2.approxPolyDP(outline, tolerance, True)[:, 0]
            assert outlines.approximate(outline, tolerance).tolist() == expected.tolist()


def test_area_and_length_are_those_of_shapely(rounds):
    rng = np.random.default_rng(2)
    for _ in range(rounds):
        points = rng.uniform(0, 100, (4, 2))
        area, length = outlines.area_and_length(points)
        ring = shapely.LinearRing(points)
        assert (abs(area), length) == pytest.approx((abs(cv2.contourArea(np.float32(points))), ring.length), rel=1e-4)


def test_the_mean_inside_is_over_what_OpenCV_paints_also_off_the_map(rounds):
    rng = np.random.default_rng(3)
    for _ in range(rounds):
        prob_map = rng.random((40, 60)).astype(np.float32)
        polygon = rng.integers(-8, (68, 48), (int(rng.integers(3, 8)), 2)).astype(np.int32)
        canvas = np.zeros((80, 100), dtype=np.uint8)
        cv2.fillPoly(canvas, [polygon + 20], 1)
        painted = prob_map[canvas[20:60, 20:80] > 0]
        expected = painted.mean(dtype=np.float64) if painted.size else 0
        mean, faint = fill.mean_inside(prob_map, polygon, 0.5)
        assert mean == pytest.approx(expected, abs=1e-6)
        assert faint == np.count_nonzero(painted <= 0.5)


def test_a_polygon_off_the_map_has_a_mean_of_zero(rounds):
    off_the_map = np.array([[9, 9], [12, 9], [9, 12]], np.int32)
    assert fill.mean_inside(np.ones((4, 4), np.float32), off_the_map, 0.5) == (0, 0)


def test_the_smallest_rectangle_has_the_area_and_sides_of_the_one_of_OpenCV(rounds):
    rng = np.random.default_rng(4)
    for _ in range(rounds):
        points = rng.integers(0, (200, 30), (int(rng.integers(1, 12)), 2)).astype(np.int32)
        corners, side = rectangle.smallest_rectangle(points)
        sides = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
        expected = cv2.minAreaRect(points)[1]
        assert side == pytest.approx(min(sides), abs=1e-6)
        assert sides[0] * sides[1] == pytest.approx(expected[0] * expected[1], abs=0.05)
        inside = shapely.MultiPoint(corners).convex_hull.buffer(1e-3)
        assert all(inside.covers(shapely.Point(point)) for point in points)


def unclipped(polygon, distance):
    offsetting = pyclipper.PyclipperOffset()
    offsetting.AddPath(polygon.tolist(), pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    return [np.array(piece) for piece in offsetting.Execute(distance)]


def test_growing_gives_the_outline_of_clipper_to_within_a_pixel(rounds):
    rng = np.random.default_rng(5)
    gaps = []
    for _ in range(rounds):
        for outline in outlines_of(blobs(rng), 0.55):
            polygon = outlines.approximate(outline, 0.7)
            area, length = outlines.area_and_length(polygon)
            distance = abs(area) * float(rng.uniform(0.5, 2.5)) / max(length, 1)
            if len(polygon) < 4 or distance < 1 or not shapely.Polygon(polygon).is_valid:
                continue
            pieces = unclipped(polygon, distance)
            # Where a bay closes clipper leaves pieces or slits: not what is compared here.
            if len(pieces) == 1 and shapely.Polygon(pieces[0]).is_valid:
                ours = shapely.LinearRing(offset.grow(polygon, distance))
                gaps.append(shapely.hausdorff_distance(ours, shapely.LinearRing(pieces[0]), densify=0.1))
    assert len(gaps) > rounds
    # Bays barely wider than a pixel are where clipper and we may round differently.
    assert np.mean(np.array(gaps) <= 1.01) > 0.99
    assert np.max(gaps) < 3


@pytest.mark.parametrize("points", [[[1, 1]], [[0, 0], [9, 0]], [[0, 0], [5, 0], [9, 0]], [[2, 2], [2, 2], [2, 2]]])
def test_what_has_no_area_does_not_grow(rounds, points):
    assert len(offset.grow(np.array(points, dtype=np.int32), 3.0)) == 0


def test_more_vertices_than_there_is_room_for_at_first_are_kept(rounds):
    prob_map = np.zeros((200, 200), dtype=np.float32)
    cv2.circle(prob_map, (100, 100), 60, 1.0, -1)
    prob_map[::2, 100:] *= 0.99
    (outline,) = outlines_of(prob_map, 0.5)
    starts = np.array([0, len(outline)])
    vertices, offsets, scores = box_kernels.polygons_from_outlines(prob_map, outline, starts, 0.5, 3.0, 0.4, 3.0)
    assert len(scores) == 1
    assert offsets.tolist() == [0, len(vertices)]
    assert len(vertices) > 32
    quads = box_kernels.quads_from_outlines(prob_map, outline, starts, 0.5, 3.0, 0.4, 3.0)
    assert quads[0].shape == (4, 2)


@pytest.mark.parametrize("ratio", [1.5, 0.0], ids=["published", "exact"])
@pytest.mark.parametrize("find", ["polygons_from_outlines", "quads_from_outlines"])
def test_each_reason_to_drop_an_outline_is_applied(rounds, find, ratio):
    prob_map = np.zeros((80, 120), dtype=np.float32)
    prob_map[5:7, 5:7] = 0.9  # too small
    prob_map[20, 10:60] = 0.9  # a hair line
    prob_map[30:40, 10:60] = 0.4  # too faint
    prob_map[50:70, 10:60] = 0.9
    found = outlines_of(prob_map, 0.3)
    starts = np.cumsum([0] + [len(outline) for outline in found])
    scores = getattr(box_kernels, find)(prob_map, np.concatenate(found), starts, 0.6, ratio, 0.4, 3.0)[2]
    assert len(found) == 4
    assert scores == pytest.approx([0.9])
