"""Boxes from maps: what was drawn comes back, as the usual loop gives it and exactly; nothing is lost in silence."""

import math
import threading
from itertools import chain

import cv2
import numpy as np
import pytest
import shapely
import torch
from outlines import arc, box, turned
from rejection import rejects

from benchmarks.reference import MapPage, network_like, usual_loop
from ocr.datasets.build import make
from ocr.errors import ConfigError
from ocr.evaluation import BoxesFromMap, BoxPool
from ocr.geometry.kernels.boxes import _shrunk_by
from ocr.geometry.polygons import Polygons
from ocr.jobs.compose import compose_training
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets, shrink


def blank(height=96, width=128):
    return np.zeros((height, width), dtype=np.float32)


def with_text(top, bottom, left, right, level=0.9):
    prob_map = blank()
    prob_map[top:bottom, left:right] = level
    return prob_map


def iou(a, b):
    first, second = shapely.Polygon(a).buffer(0), shapely.Polygon(b).buffer(0)
    return first.intersection(second).area / first.union(second).area


def letterboxed(polygon, width=1200, height=1500, size=640):
    """A page through the letterbox, its map, and the unclip ratio that undoes the shrinking of this polygon."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    page = Letterbox(size)(
        Sample(0, "page.jpg", "page.jpg", Polygons.pack([polygon]), image=image, shape=(width, height))
    )
    distance = (page.polygons.areas * (1 - 0.4**2) / page.polygons.perimeters)[0]
    shrunk = Polygons.pack(shrink(page.polygons.vertices.astype(np.int32), distance))
    ratio = float(distance * shrunk.perimeters[0] / shrunk.areas[0])
    return page, Targets().draw(page.polygons, size, size)["prob_map"], ratio


BOX = box(300, 400, 600, 80)
ARC = arc((600, 900), 500, 400, 0.8)


@pytest.mark.parametrize(
    "polygon",
    [BOX, turned(BOX, np.deg2rad(12)), turned(BOX, np.deg2rad(90)), ARC],
    ids=["box", "slanted", "upright", "arc"],
)
def test_a_drawn_polygon_comes_back_on_its_page(polygon):
    page, prob_map, ratio = letterboxed(polygon)
    found = BoxesFromMap(unclip_ratio=ratio)(prob_map, page.inverse_matrix, page.shape)
    assert len(found) == 1
    assert iou(next(iter(found.polygons)), polygon) > 0.9


@pytest.mark.parametrize("degrees", [0, 7, 45, 90])
def test_a_quadrilateral_has_four_corners_from_the_top_left_clockwise(degrees):
    polygon = turned(BOX, np.deg2rad(degrees))
    page, prob_map, ratio = letterboxed(polygon)
    found = BoxesFromMap(unclip_ratio=ratio, use_polygon=False)(prob_map, page.inverse_matrix, page.shape)
    (quad,) = found.polygons
    assert quad.shape == (4, 2)
    assert iou(quad, polygon) > 0.9
    assert shapely.LinearRing(quad).is_ccw  # Counterclockwise with y upwards is clockwise on the screen.
    assert np.argmin(quad.sum(axis=1)) == 0


def test_a_polygon_follows_a_bend_that_a_quadrilateral_cannot():
    page, prob_map, ratio = letterboxed(ARC)
    polygon = BoxesFromMap(unclip_ratio=ratio)(prob_map, page.inverse_matrix, page.shape)
    quad = BoxesFromMap(unclip_ratio=ratio, use_polygon=False, box_thresh=0.1)(
        prob_map, page.inverse_matrix, page.shape
    )
    assert iou(next(iter(polygon.polygons)), ARC) > 0.9
    assert iou(next(iter(quad.polygons)), ARC) < 0.7


def test_the_score_is_the_mean_inside_the_outline():
    prob_map = with_text(20, 40, 10, 90, level=0.7)
    prob_map[25, 30:50] = 1.0
    for use_polygon in (True, False):
        found = BoxesFromMap(use_polygon=use_polygon)(prob_map)
        assert found.scores == pytest.approx([prob_map[20:40, 10:90].mean()])


def test_each_threshold_is_honoured():
    prob_map = with_text(20, 40, 10, 90, level=0.5)
    assert len(BoxesFromMap(thresh=0.49, box_thresh=0.5)(prob_map)) == 1
    assert len(BoxesFromMap(thresh=0.5, box_thresh=0.5)(prob_map)) == 0
    assert len(BoxesFromMap(thresh=0.3, box_thresh=0.51)(prob_map)) == 0


def test_the_unclip_ratio_moves_each_side_out_by_area_times_ratio_over_length():
    prob_map = with_text(30, 51, 20, 101)  # Outline of 80 x 20: 1600 / 200 = 8.
    for ratio in (0.5, 1.0, 1.5):
        found = BoxesFromMap(unclip_ratio=ratio)(prob_map)
        reach = 8 * ratio
        assert found.polygons.bounds[0] == pytest.approx([20 - reach, 30 - reach, 100 + reach, 50 + reach])


def test_text_under_the_smallest_size_is_left_out():
    prob_map = with_text(30, 34, 20, 60)  # Its outline is 3 pixels high.
    assert len(BoxesFromMap(unclip_ratio=1.5, use_polygon=False, min_size=3)(prob_map)) == 1
    assert len(BoxesFromMap(unclip_ratio=1.5, use_polygon=False, min_size=3.5)(prob_map)) == 0
    assert len(BoxesFromMap(unclip_ratio=1.5, min_size=6)(prob_map)) == 0
    for use_polygon in (True, False):  # Its text is 10 pixels high.
        assert len(BoxesFromMap(use_polygon=use_polygon, min_size=7)(prob_map)) == 1
        assert len(BoxesFromMap(use_polygon=use_polygon, min_size=9)(prob_map)) == 0


def test_an_empty_map_has_no_boxes():
    for size in ((1, 1), (7, 3), (96, 128)):
        found = BoxesFromMap()(blank(*size), np.eye(3), (10, 10))
        assert (len(found), len(found.polygons), found.left_out) == (0, 0, 0)


@pytest.mark.parametrize("use_polygon", [True, False])
def test_a_map_full_of_text_is_one_box_cut_to_the_page(use_polygon):
    found = BoxesFromMap(use_polygon=use_polygon)(np.ones((64, 96), dtype=np.float32), np.eye(3), (96, 64))
    assert len(found) == 1
    assert iou(next(iter(found.polygons)), [[0, 0], [96, 0], [96, 64], [0, 64]]) > 0.99
    assert found.polygons.vertices.min() >= 0


def test_single_pixels_and_hair_lines_are_no_text():
    prob_map = blank()
    prob_map[10, 10] = prob_map[95, 127] = prob_map[0, 0] = 1
    prob_map[50, 20:100] = prob_map[60:90, 5] = 1
    for use_polygon in (True, False):
        assert len(BoxesFromMap(use_polygon=use_polygon)(prob_map)) == 0


def test_text_in_each_corner_is_found_and_stays_on_the_page():
    prob_map = blank()
    for rows in (slice(0, 10), slice(86, 96)):
        for columns in (slice(0, 40), slice(88, 128)):
            prob_map[rows, columns] = 1
    found = BoxesFromMap()(prob_map, np.eye(3), (128, 96))
    assert len(found) == 4
    assert found.polygons.vertices.min() == 0
    assert found.polygons.vertices.max(axis=0).tolist() == [128, 96]


def test_a_box_in_the_padding_is_not_on_the_page():
    prob_map = with_text(20, 40, 10, 40)
    prob_map[20:40, 90:120] = 1
    found = BoxesFromMap(unclip_ratio=0.5)(prob_map, np.eye(3), (64, 96))
    assert len(found) == len(found.polygons) == 1
    assert found.polygons.vertices[:, 0].max() < 64


def test_a_hole_is_no_box_and_text_inside_it_is():
    prob_map = with_text(10, 86, 10, 118)
    prob_map[20:76, 20:108] = 0
    prob_map[40:56, 40:88] = 0.9
    found = BoxesFromMap(box_thresh=0.4, unclip_ratio=0.5)(prob_map)
    assert len(found) == 2
    assert found.scores == pytest.approx([prob_map[10:86, 10:118].mean(), 0.9], abs=1e-5)


def test_a_bay_that_closes_does_not_cost_the_box():
    prob_map = blank()
    cv2.ellipse(prob_map, (64, 48), (30, 30), 0, 10, 350, 0.9, 12)
    found = BoxesFromMap(box_thresh=0.3)(prob_map)
    assert len(found) == 1
    assert shapely.Polygon(next(iter(found.polygons))).buffer(0).contains(shapely.Point(64, 48))


def test_thousands_of_boxes_come_out_of_one_map_without_a_cut():
    prob_map = blank(1280, 1280)
    for y in range(2, 1270, 16):
        for x in range(2, 1250, 24):
            prob_map[y : y + 6, x : x + 12] = 0.9
    expected = len(range(2, 1270, 16)) * len(range(2, 1250, 24))
    found = BoxesFromMap()(prob_map)
    assert expected > 4000
    assert (len(found), found.left_out) == (expected, 0)
    assert np.all(np.diff(found.polygons.bounds[:, 1]) >= 0)


def test_what_max_candidates_cuts_off_is_counted_and_has_the_lowest_scores():
    prob_map = blank()
    for row, level in enumerate((0.7, 0.9, 0.65, 0.8)):
        prob_map[4 + 22 * row : 14 + 22 * row, 10:60] = level
    found = BoxesFromMap(max_candidates=2)(prob_map)
    assert found.scores == pytest.approx([0.9, 0.8])
    assert (len(found.polygons), found.left_out) == (2, 2)
    assert BoxesFromMap(max_candidates=4)(prob_map).left_out == 0


def random_page(seed, side=160):
    rng = np.random.default_rng(seed)
    drawn = blank(side, side)
    for _ in range(14):
        centre, size, angle = rng.integers(10, side - 10, 2), rng.integers(3, 40, 2), rng.uniform(-30, 30)
        cv2.fillPoly(drawn, [cv2.boxPoints((centre.tolist(), size.tolist(), angle)).astype(np.int32)], 1.0)
    # Away from the border, where OpenCV paints a cropped mask less exactly than a whole one.
    prob_map = np.pad(network_like(drawn, rng), 40)
    return MapPage(prob_map, np.diag([1.7, 1.7, 1.0]), (408, 408))


def outer_ring(box):
    """The outline without the bays that closed, which clipper leaves as slits."""
    parts = shapely.get_parts(shapely.make_valid(shapely.Polygon(box), method="structure"))
    return max(parts, key=lambda part: part.area).exterior


class Agreement:
    """How far two sets of boxes are from each other, in pixels of the map."""

    def __init__(self):
        self.missing, self.extra, self.score_gap = 0, 0, 0.0
        self.gaps = []

    def compare(self, page, usual, ours):
        """Match each usual box with the nearest of ours, outline against outline (symmetric Hausdorff distance)."""
        scale = float(np.sqrt(abs(np.linalg.det(page.inverse_matrix[:2, :2]))))
        rings = [outer_ring(polygon) for polygon in ours.polygons]
        free = set(range(len(rings)))
        tree = shapely.STRtree(rings)
        for found, score in usual:
            ring = outer_ring(found)
            near = [index for index in tree.query(ring, "dwithin", scale) if index in free]
            gaps = {i: shapely.hausdorff_distance(ring, rings[i], densify=0.1) / scale for i in near}
            best = min(gaps, key=gaps.__getitem__, default=None)
            if best is None or gaps[best] > 3:
                self.missing += 1
                continue
            free.remove(best)
            self.gaps.append(gaps[best])
            self.score_gap = max(self.score_gap, abs(score - float(ours.scores[best])))
        self.extra += len(free)


@pytest.mark.parametrize("use_polygon", [True, False])
def test_the_boxes_are_those_of_the_usual_loop(use_polygon):
    boxes, agreement = BoxesFromMap(unclip_ratio=1.5, use_polygon=use_polygon), Agreement()
    for seed in range(60):
        page = random_page(seed)
        agreement.compare(page, usual_loop(page, boxes), boxes(*page))
    assert (agreement.missing, agreement.extra) == (0, 0)
    assert len(agreement.gaps) > 100
    assert max(agreement.gaps) <= 1.001  # Pixels of the map.
    assert agreement.score_gap < 1e-6


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, np.float16, np.float64])
def test_maps_of_any_float_type_are_taken(kind):
    prob_map = with_text(20, 40, 10, 90, level=0.75)
    given = torch.from_numpy(prob_map)[None].to(kind) if isinstance(kind, torch.dtype) else prob_map.astype(kind)
    found = BoxesFromMap()(given)
    assert found.scores.tolist() == [0.75]


def test_a_map_of_another_width_after_the_first_is_read_alone():
    BoxesFromMap()(np.ones((20, 30), dtype=np.float32))
    assert len(BoxesFromMap()(np.zeros((20, 29), dtype=np.float32))) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_map_that_is_not_a_number_is_refused(value):
    prob_map = blank()
    prob_map[3, 4], prob_map[5, 6] = value, -value
    with pytest.raises(ValueError, match="NaN"):
        BoxesFromMap()(prob_map)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("thresh", 1.5), ("thresh", "0.3"), ("thresh", [0.3]), ("box_thresh", -0.1), ("box_thresh", None)),
        *(("unclip_ratio", 0), ("unclip_ratio", "exakt"), ("unclip_ratio", True), ("unclip_ratio", 10**400)),
        *(("min_size", "3"), ("max_candidates", 0), ("max_candidates", 2.5), ("shrink_ratio", 1), ("shrink_ratio", {})),
    ],
)
def test_a_setting_that_cannot_work_is_named(setting, value):
    with rejects(ConfigError, setting=f"BoxesFromMap.{setting}", value=value):
        BoxesFromMap(**{setting: value})


def batches():
    for start in range(0, 12, 4):
        pages = [random_page(seed) for seed in range(start, start + 4)]
        maps = torch.from_numpy(np.stack([page.prob_map for page in pages]))[:, None]
        yield maps, [page.inverse_matrix for page in pages], [page.size for page in pages]


def test_threads_give_the_boxes_of_one_thread_in_the_same_order():
    boxes = BoxesFromMap()
    with BoxPool(boxes, workers=3) as pool:
        for batch in batches():
            pool.submit(*batch)
        threaded = list(pool.drain())
    serial = [boxes.batch(*batch) for batch in batches()]
    assert [len(batch) for batch in threaded] == [4, 4, 4]
    for mine, theirs in zip(chain(*threaded), chain(*serial), strict=True):
        assert np.array_equal(mine.polygons.vertices, theirs.polygons.vertices)
        assert np.array_equal(mine.scores, theirs.scores)


def test_the_pool_can_be_drained_one_batch_behind_the_model():
    with BoxPool(BoxesFromMap()) as pool:
        came = []
        for batch in batches():
            pool.submit(*batch)
            came.append(len(list(pool.drain(keep=1))))
        came.append(len(list(pool.drain())))
    assert came == [0, 1, 1, 1]


def find_nothing(pool):
    with pool:
        pool.submit(np.full((2, 8, 8), np.nan), [np.eye(3)] * 2, [(8, 8)] * 2)
        return list(pool.drain())


def interrupt(pool):
    with pool:
        pool.submit(*next(batches()))
        raise KeyboardInterrupt


@pytest.mark.parametrize(("work", "error"), [(find_nothing, ValueError), (interrupt, KeyboardInterrupt)])
def test_the_pool_leaves_no_thread_behind_after_an_error(work, error):
    before = set(threading.enumerate())
    with pytest.raises(error):
        work(BoxPool(BoxesFromMap()))
    assert set(threading.enumerate()) == before


def test_a_pool_without_threads_is_refused():
    with rejects(ConfigError, setting="BoxPool.workers", value=0):
        BoxPool(BoxesFromMap(), workers=0)


def test_a_batch_with_a_page_too_few_is_refused():
    with pytest.raises(ValueError, match="zip"), BoxPool(BoxesFromMap()) as pool:
        pool.submit(np.zeros((2, 8, 8)), [np.eye(3)], [(8, 8)])


def drawn(polygon, shrink_ratio, side=256):
    return Targets(shrink_ratio=shrink_ratio).draw(Polygons.pack([polygon]), side, side)["prob_map"]


def word(x, y, width, height, degrees=0.0):
    angle = np.deg2rad(degrees)
    across, down = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    corners = [(0, 0), (width, 0), (width, height), (0, height)]
    return np.array([x, y]) + np.array([along * across + below * down for along, below in corners])


BEND = arc((128, 190), 120, 90, 0.7)


def only_box(prob_map, **settings):
    (found,) = BoxesFromMap(**settings)(prob_map).polygons
    return shapely.Polygon(found).buffer(0)


@pytest.mark.parametrize(("corners", "join"), [(4.0, "mitre"), (math.pi, "round")])
def test_the_distance_is_that_by_which_the_text_was_shrunk(corners, join):
    for width, height in ((200.0, 20.0), (37.0, 31.0), (9.0, 6.0)):
        kernel = shapely.box(0, 0, width, height)
        text = kernel.buffer(3, join_style=join, quad_segs=500)
        ratio = math.sqrt(1 - 3 * text.length / text.area)
        assert _shrunk_by(kernel.area, kernel.length, 0, ratio, corners) == pytest.approx(3, rel=1e-4)


@pytest.mark.parametrize("use_polygon", [True, False])
@pytest.mark.parametrize(("shrink_ratio", "width", "height"), [(0.4, 150, 25), (0.6, 80, 20)])
@pytest.mark.parametrize("degrees", [0, 12, 90])
def test_a_word_comes_back_within_a_pixel(degrees, shrink_ratio, width, height, use_polygon):
    # Shrunk by 9.0 and 5.1 pixels: the map has no half ones. A slanted outline has steps.
    points = word(90.3, 60.7, width, height, degrees)
    found = only_box(drawn(points, shrink_ratio), shrink_ratio=shrink_ratio, use_polygon=use_polygon)
    text = shapely.Polygon(points)
    assert found.within(text.buffer(1.3 if degrees == 12 else 1, join_style="mitre"))
    # The corners of a polygon are round, its sides are where they were.
    inside = text.buffer(-1, join_style="mitre")
    assert (inside.buffer(-7).buffer(7) if use_polygon else inside).within(found)


def test_a_bent_line_comes_back_in_its_bend():
    text = shapely.Polygon(BEND)
    found = only_box(drawn(BEND, 0.6), shrink_ratio=0.6)
    assert found.intersection(text).area / found.union(text).area > 0.9
    assert text.symmetric_difference(found).buffer(-0.8).area < 12


def test_boxes_are_shifted_to_no_side():
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(60):
        x, y, width, height = *rng.uniform(30, 60, 2), rng.uniform(40, 120), rng.uniform(12, 30)
        found = BoxesFromMap(shrink_ratio=0.6, use_polygon=False)(drawn(word(x, y, width, height), 0.6))
        gaps.append(found.polygons.bounds[0] - [x, y, x + width, y + height])
    left, top, right, bottom = np.mean(gaps, axis=0)
    assert abs(left + right) / 2 < 0.2
    assert abs(top + bottom) / 2 < 0.2
    assert abs(bottom - top) / 2 < 0.4


@pytest.mark.parametrize("use_polygon", [True, False])
def test_a_soft_edge_gives_the_box_of_a_hard_one_at_any_threshold(use_polygon):
    hard = drawn(word(60.3, 60.7, 120, 30), 0.6)
    soft = cv2.GaussianBlur(hard, (0, 0), 1.0)
    expected = only_box(hard, shrink_ratio=0.6, use_polygon=use_polygon)
    for thresh in (0.1, 0.2, 0.3, 0.4):
        found = only_box(soft, thresh=thresh, shrink_ratio=0.6, use_polygon=use_polygon)
        assert found.intersection(expected).area / found.union(expected).area > 0.93


def test_a_bump_on_the_outline_moves_a_rectangle_by_its_share_only():
    smooth = drawn(word(40, 60, 160, 30), 0.6)
    bumpy = smooth.copy()
    top = int(np.flatnonzero(smooth.any(axis=1))[0])
    bumpy[top - 3 : top, 100:110] = 1
    heights = [
        np.ptp(np.array(only_box(page, shrink_ratio=0.6, use_polygon=False).exterior.coords)[:, 1])
        for page in (smooth, bumpy)
    ]
    assert heights[1] - heights[0] < 1


def test_a_low_threshold_cannot_turn_a_faint_box_inside_out():
    prob_map = np.full((64, 128), 0.35, dtype=np.float32)
    prob_map[20:44, 30:100] = 0.38
    found = BoxesFromMap(thresh=0.36, box_thresh=0.3, shrink_ratio=0.9)(prob_map)
    assert len(found) == 1
    assert found.polygons.areas[0] > 1000


def test_the_config_hands_the_shrink_ratio_of_the_targets_to_the_boxes():
    boxes = make(compose_training(["targets.shrink_ratio=0.55"]).boxes, "boxes")
    assert (boxes.unclip_ratio, boxes.shrink_ratio) == ("exact", 0.55)
    assert make(compose_training(["boxes.unclip_ratio=1.7"]).boxes, "boxes").unclip_ratio == 1.7
