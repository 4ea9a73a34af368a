"""Outlines that cross themselves become ignored hulls; long ones are thinned; all others stay as they are."""

import cv2
import numpy as np
import pytest

from ocr.geometry.kernels.crossings import self_crossings
from ocr.geometry.mend import MAX_VERTICES, mend
from ocr.geometry.polygons import Polygons

BOX = [[10, 10], [90, 10], [90, 40], [10, 40]]
CROSSED = {
    "bow-tie": [[10, 10], [90, 40], [90, 10], [10, 40]],
    "bow-tie with loops of different size": [[10, 10], [90, 30], [90, 10], [10, 40]],
    "two lines both written from the left": [[0, 0], [20, 0], [40, 0], [0, 10], [20, 10], [40, 10]],
    "figure of eight through two vertices": [[0, 0], [10, 10], [20, 20], [20, 0], [10, 10], [0, 20]],
    "pentagram": [[50, 0], [80, 90], [0, 35], [100, 35], [20, 90]],
}
SIMPLE = {
    "box": BOX,
    "box with every corner twice": [corner for corner in BOX for _ in range(2)],
    "box with a closing vertex": [*BOX, BOX[0]],
    "box with 30 closing vertices": [*BOX, *[BOX[0]] * 30],
    "arrow": [[0, 0], [50, 20], [0, 40], [15, 20]],
    "two triangles that share a corner": [[40, 40], [20, 30], [20, 50], [40, 40], [60, 50], [60, 30]],
    "box with a spike along its side": [[10, 10], [95, 10], [90, 10], [90, 40], [10, 40]],
    "curved, with a slip at its corner": [[0, 0], [50, 0], [100, 0], [100, 20], [50, 20], [2, 20], [1, -1]],
    "line": [[0, 0], [10, 10], [20, 20]],
    "point": [[5, 5]] * 4,
}


@pytest.mark.parametrize("points", CROSSED.values(), ids=CROSSED)
@pytest.mark.parametrize("ignore", [False, True])
def test_a_crossed_outline_becomes_an_ignored_hull(points, ignore):
    box = np.array(BOX) + 100
    polygons, crossed, simplified = mend(Polygons.pack([box, points], [False, ignore], ["a", "b"]))
    kept, hull = polygons
    assert (crossed, simplified) == (1, 0)
    assert np.array_equal(kept, box)
    assert polygons.ignore.tolist() == [False, True]
    assert polygons.texts == ("a", "b")
    assert cv2.isContourConvex(hull.astype(np.int32))
    assert all(cv2.pointPolygonTest(hull, (float(x), float(y)), False) >= 0 for x, y in points)


@pytest.mark.parametrize("points", SIMPLE.values(), ids=SIMPLE)
def test_any_other_outline_stays_as_it_is(points):
    before = Polygons.pack([points, BOX])
    mended = mend(before)
    assert mended.polygons is before
    assert (mended.crossed, mended.simplified) == (0, 0)


def test_a_page_without_words_has_nothing_to_mend():
    assert mend(Polygons.pack([])).crossed == 0


def test_a_long_outline_is_thinned_to_its_limit_and_keeps_its_shape():
    angles = np.linspace(0, 2 * np.pi, 20_000, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)]) * 300 + 320
    polygons, crossed, simplified = mend(Polygons.pack([circle, circle[:: 20_000 // MAX_VERTICES], BOX]))
    assert (crossed, simplified) == (0, 1)
    assert np.diff(polygons.offsets).tolist() == [MAX_VERTICES, MAX_VERTICES, 4]
    assert polygons.areas[0] == pytest.approx(np.pi * 300**2, rel=1e-4)


def test_a_scribble_of_any_length_is_not_resolved_but_ignored_as_a_whole():
    scribble = np.random.default_rng(0).uniform(0, 640, (20_000, 2))
    polygons, crossed, simplified = mend(Polygons.pack([scribble]))
    assert (crossed, simplified) == (1, 1)
    assert len(polygons.vertices) < 100
    assert polygons.ignore.all()


def test_crossings_and_touches_are_told_apart():
    bow_tie, touching = CROSSED["bow-tie"], SIMPLE["two triangles that share a corner"]
    packed = Polygons.pack([bow_tie, touching, BOX, [[0, 0], [9, 0], [0, 9]]])
    counts = self_crossings(packed.vertices.astype(np.float64), packed.offsets.astype(np.int64))
    assert counts[:, 0].tolist() == [1, 0, 0, 0]
    assert (counts[:, 1] > 0).tolist() == [False, True, False, False]
