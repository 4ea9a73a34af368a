"""The exact unclip: what the targets shrink comes back, on hard maps and on soft ones."""

import math

import cv2
import numpy as np
import pytest
import shapely

from ocr.datasets.build import make
from ocr.errors import ConfigError
from ocr.evaluation import BoxesFromMap
from ocr.geometry.kernels.boxes import _shrunk_by
from ocr.geometry.polygons import Polygons
from ocr.jobs.compose import compose_training
from ocr.pipeline.targets import Targets


def drawn(polygon, shrink_ratio, side=256):
    return Targets(shrink_ratio=shrink_ratio).draw(Polygons.pack([polygon]), side, side).prob_map


def word(x, y, width, height, degrees=0.0):
    angle = np.deg2rad(degrees)
    across, down = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    corners = [(0, 0), (width, 0), (width, height), (0, height)]
    return np.array([x, y]) + np.array([along * across + below * down for along, below in corners])


ARC = np.array([[128 + r * np.sin(a), 190 - r * np.cos(a)] for r, turn in ((120, 1), (90, -1))
                for a in np.linspace(-0.7, 0.7, 12)[::turn]])  # fmt: skip


def only_box(prob_map, **settings):
    (box,) = BoxesFromMap(**settings)(prob_map).polygons
    return shapely.Polygon(box).buffer(0)


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
    text = shapely.Polygon(ARC)
    found = only_box(drawn(ARC, 0.6), shrink_ratio=0.6)
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unclip_ratio": "exakt"}, r"unclip_ratio='exakt' must be 'exact' or a number > 0"),
        ({"unclip_ratio": True}, r"unclip_ratio=True must be"),
        ({"shrink_ratio": 1}, r"shrink_ratio=1 must be a number > 0 and < 1"),
    ],
)
def test_a_ratio_that_cannot_work_is_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        BoxesFromMap(**settings)
