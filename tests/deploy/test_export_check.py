"""export_check: what an exported model may differ by."""

from dataclasses import replace

import numpy as np
import pytest

from ocr import Detector
from ocr.deploy.export_check import Check, Checker, outline_distance
from ocr.deploy.inputs import pages_of
from ocr.evaluation.boxes import Detections
from ocr.geometry.polygons import Polygons

SAME = Check("fp32", 4, (90, 90), 0.0, 1.0, (0.9, 0.9), (20.0, 10.0))


def test_equal_boxes_pass_in_every_precision():
    for precision in ("fp32", "fp16", "bf16", "int8"):
        assert replace(SAME, precision=precision).failures == []


@pytest.mark.parametrize(
    ("precision", "changes", "failure"),
    [
        ("fp32", {"outline_pixels": None, "boxes": (90, 91)}, "91 boxes instead of 90"),
        ("fp32", {"outline_pixels": 0.6}, "0.60 pixels off"),
        ("fp32", {"hmean": (0.9, 0.8985)}, "0.0015 lower"),
        ("bf16", {"hmean": (0.9, 0.897)}, "0.0030 lower"),
        ("int8", {"hmean": (0.9, 0.894)}, "0.0060 lower"),
        ("int8", {"hmean": (0.9, float("nan"))}, "nan lower"),
        ("int8", {"hmean": None, "agreement": 0.94}, "agree to 0.940"),
        ("fp16", {"hmean": None, "agreement": 0.97}, "agree to 0.970"),
    ],
)
def test_what_differs_by_more_than_its_limit_is_a_failure(precision, changes, failure):
    (found,) = replace(SAME, precision=precision, **changes).failures
    assert failure in found


@pytest.mark.parametrize(
    ("precision", "changes"),
    [
        ("bf16", {"hmean": (0.9, 0.8985), "outline_pixels": None}),
        ("int8", {"hmean": (0.9, 0.896), "agreement": 0.5}),
        ("int8", {"hmean": (0.9, 0.95)}),
    ],
)
def test_other_boxes_of_a_lower_precision_are_judged_by_the_h_mean_and_a_higher_one_is_no_failure(precision, changes):
    assert replace(SAME, precision=precision, **changes).failures == []


def found(*lefts: float) -> Detections:
    """Upright boxes of 20 x 10 in one line."""
    outlines = [np.array([[x, 5], [x + 20, 5], [x + 20, 15], [x, 15]], np.float32) for x in lefts]
    return Detections(Polygons.pack(outlines), np.full(len(outlines), 0.9, np.float32))


def test_boxes_that_come_in_another_order_are_the_same_boxes():
    assert outline_distance(found(10, 50, 90), found(90.25, 10, 50)) == 0.25
    assert outline_distance(found(), found()) == 0
    assert outline_distance(found(10, 50), found(10)) == np.inf
    assert outline_distance(found(10, 50), found(10, 900)) == outline_distance(found(10, 900), found(10, 50)) == 850


def outline(*points: tuple[float, float]) -> Detections:
    return Detections(Polygons.pack([np.array(points, np.float32)]), np.full(1, 0.9, np.float32))


def test_corners_that_start_elsewhere_or_lie_on_a_straight_side_move_no_outline():
    corners = (10, 5), (210, 5), (210, 25), (10, 25)
    box = outline(*corners)
    assert outline_distance(box, outline(*corners[2:], *corners[:2])) == 0
    assert outline_distance(box, outline(*corners[::-1])) == 0
    with_one_more = outline(*corners[:1], (110, 5), *corners[1:])
    assert outline_distance(box, with_one_more) == outline_distance(with_one_more, box) == 0
    assert outline_distance(box, outline(*corners[:1], (110, 2), *corners[1:])) == 3
    assert outline_distance(box, outline((10, 5), (240, 5), (240, 25), (10, 25))) == 30


def test_pages_without_labels_are_compared_with_the_boxes_of_the_checkpoint(checkpoint, folder):
    detector, fewer = Detector.load(checkpoint), Detector.load(checkpoint, boxes={"box_thresh": 0.55})
    pages = list(pages_of(folder / "images"))
    same, other = (Checker(detector, pages).check(exported, "fp32") for exported in (detector, fewer))
    assert (same.hmean, same.agreement, same.outline_pixels, same.failures) == (None, 1.0, 0.0, [])
    assert other.boxes[1] < other.boxes[0] == same.boxes[0]
    assert other.outline_pixels is None
    assert other.agreement < 1
    assert len(other.failures) == 2
