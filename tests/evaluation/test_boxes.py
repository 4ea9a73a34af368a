"""Boxes from maps: what was drawn comes back, as the usual loop gives it, and nothing is lost in silence."""

import threading
from itertools import chain

import cv2
import numpy as np
import pytest
import shapely
import torch

from benchmarks.boxes import Agreement, Page, network_like, usual_loop
from ocr.errors import ConfigError
from ocr.evaluation import BoxesFromMap, BoxPool
from ocr.geometry.polygons import Polygons
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
    return page, Targets().draw(page.polygons, size, size).prob_map, ratio


def turned(points, degrees):
    angle, centre = np.deg2rad(degrees), np.mean(points, axis=0)
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (points - centre) @ matrix.T + centre


BOX = np.array([[300.0, 400.0], [900.0, 400.0], [900.0, 480.0], [300.0, 480.0]])
ARC = np.array([[600 + r * np.sin(a), 900 - r * np.cos(a)] for r, turn in ((500, 1), (400, -1))
                for a in np.linspace(-0.8, 0.8, 12)[::turn]])  # fmt: skip


@pytest.mark.parametrize(
    "polygon", [BOX, turned(BOX, 12), turned(BOX, 90), ARC], ids=["box", "slanted", "upright", "arc"]
)
def test_a_drawn_polygon_comes_back_on_its_page(polygon):
    page, prob_map, ratio = letterboxed(polygon)
    found = BoxesFromMap(unclip_ratio=ratio)(prob_map, page.inverse_matrix, page.shape)
    assert len(found) == 1
    assert iou(next(iter(found.polygons)), polygon) > 0.9


@pytest.mark.parametrize("degrees", [0, 7, 45, 90])
def test_a_quadrilateral_has_four_corners_from_the_top_left_clockwise(degrees):
    polygon = turned(BOX, degrees)
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
    return Page(prob_map, np.diag([1.7, 1.7, 1.0]), (408, 408))


@pytest.mark.parametrize("use_polygon", [True, False])
def test_the_boxes_are_those_of_the_usual_loop(use_polygon):
    boxes, agreement = BoxesFromMap(unclip_ratio=1.5, use_polygon=use_polygon), Agreement()
    for seed in range(60):
        page = random_page(seed)
        agreement.compare(page, usual_loop(page, boxes), boxes(*page))
    assert agreement.close(), str(agreement)
    assert agreement.matched > 100
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
def test_a_map_that_is_not_a_number_is_refused_by_name(value):
    prob_map = blank()
    prob_map[3, 4], prob_map[5, 6] = value, -value
    with pytest.raises(ValueError, match="boxes: the probability map has NaN"):
        BoxesFromMap()(prob_map)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("thresh", 1.5), ("box_thresh", -0.1), ("unclip_ratio", 0), ("max_candidates", 0)],
)
def test_a_setting_that_cannot_work_is_named(setting, value):
    with pytest.raises(ConfigError, match=f"{setting}={value}"):
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
    for ours, theirs in zip(chain(*threaded), chain(*serial), strict=True):
        assert np.array_equal(ours.polygons.vertices, theirs.polygons.vertices)
        assert np.array_equal(ours.scores, theirs.scores)


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


def break_off(pool):
    with pool:
        pool.submit(*next(batches()))
        raise KeyboardInterrupt


@pytest.mark.parametrize(("work", "error"), [(find_nothing, ValueError), (break_off, KeyboardInterrupt)])
def test_the_pool_leaves_no_thread_behind_after_an_error(work, error):
    before = set(threading.enumerate())
    with pytest.raises(error):
        work(BoxPool(BoxesFromMap()))
    assert set(threading.enumerate()) == before


def test_a_pool_without_threads_is_refused():
    with pytest.raises(ConfigError, match="workers=0"):
        BoxPool(BoxesFromMap(), workers=0)


def test_a_batch_with_a_page_too_few_is_refused():
    with pytest.raises(ValueError, match="zip"), BoxPool(BoxesFromMap()) as pool:
        pool.submit(np.zeros((2, 8, 8)), [np.eye(3)], [(8, 8)])


@pytest.mark.parametrize(
    "setting",
    [
        *({"thresh": "0.3"}, {"box_thresh": None}, {"thresh": [0.3]}, {"min_size": "3"}, {"max_candidates": 2.5}),
        *({"shrink_ratio": {}}, {"unclip_ratio": 10**400}),
    ],
    ids=str,
)
def test_a_setting_of_another_type_is_refused_by_its_name(setting):
    (name,) = setting
    with pytest.raises(ConfigError, match=rf"{name}=.* must be"):
        BoxesFromMap(**setting)
