"""Text exactly at the edge of the page: on which side a vertex counts, and how a half pixel is rounded."""

import numpy as np
import pytest

from benchmarks.reference import reference_maps
from ocr.geometry.orientation import frame_by_geometry
from ocr.geometry.polygons import Polygons
from ocr.pipeline.placement import Window
from ocr.pipeline.targets import Targets


@pytest.mark.parametrize(("vertex", "frame"), [((300, 400), "upright"), ((400, 300), "raw")])
def test_a_vertex_exactly_on_the_edge_of_a_page_is_on_it(vertex, frame):
    assert frame_by_geometry(np.array([vertex], np.float32), 6, (400, 300)) == frame


EDGES = {
    "right edge on the first column": ([-9, 2, 0, 8], True),
    "lower edge on the first row": ([2, -9, 8, 0], True),
    "half a pixel before the first column": ([-9, 2, -0.5, 8], False),
    "half a pixel before the first row": ([2, -9, 8, -0.5], False),
    "left edge on the last column": ([19, 2, 30, 8], True),
    "left edge beside the last column": ([20, 2, 30, 8], False),
    "upper edge under the last row": ([2, 10, 8, 19], False),
}


@pytest.mark.parametrize(("bounds", "touches"), EDGES.values(), ids=EDGES)
def test_a_page_and_a_window_of_it_hold_the_same_words(bounds, touches):
    left, top, right, bottom = bounds
    box = Polygons.pack([[[left, top], [right, top], [right, bottom], [left, bottom]]])
    assert box.on_page(20, 10).tolist() == [touches]
    assert Window(0, 0, 20, 10).touches(box.bounds).tolist() == [touches]


@pytest.mark.parametrize("axis", [0, 1], ids=["right side", "lower side"])
@pytest.mark.parametrize(("end", "lines"), [(2, 0), (3, 2), (4, 3)])
def test_a_side_shrunk_to_a_half_pixel_is_rounded_away_from_zero(axis, end, lines):
    # 20 x 10 pixels, so D is 2.5: the side ends at -0.5, which is column -1, at 0.5 and at 1.5.
    box = np.array([[end - 20, 20], [end, 20], [end, 30], [end - 20, 30]], np.float32)
    box = box if axis == 0 else box[::-1, ::-1].copy()
    prob_map = Targets(0.5, min_text_size=0).draw(Polygons.pack([box]), 64, 64).prob_map
    assert np.array_equal(prob_map, reference_maps([box], 64, 64, 0.5, 0.3, 0.7)[0])
    assert prob_map.any(axis=axis).sum() == lines
