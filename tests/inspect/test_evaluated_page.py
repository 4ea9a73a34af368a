"""Causes from maps and pixels: pages on which it is known what went wrong."""

from dataclasses import replace

import numpy as np
import pytest
from evaluated_pages import BOXES, SIDE, TARGETS, evaluated, make_page, outline

from ocr.evaluation import HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.inspect.result import FALSE, MISSED, evaluate_page
from ocr.inspect.shapes import measure_shapes, measure_texture, upright_patch

LINE = (20, 40, 180, 60)
BELOW = (20, 90, 180, 110)


def causes_of(page, kind=MISSED):
    return [error.cause for error in page.errors if error.kind == kind]


def test_a_page_that_is_found_whole_has_no_errors_and_the_scores_of_a_test():
    page = evaluated([LINE, BELOW], [(LINE, 0.9), (BELOW, 0.9)])
    assert (page.errors, page.counts.hmean, page.tight.hmean) == ([], 1, 1)
    assert page.cleval == (1, 1, 1)
    assert page.found.tolist() == page.right.tolist() == [True, True]


def test_scores_equal_those_of_the_metric_on_a_page_with_ignored_and_false_boxes():
    words, seen = (
        [LINE, BELOW, (20, 140, 60, 160)],
        [(LINE, 0.9), ((20, 140, 60, 160), 0.9), ((90, 200, 200, 220), 0.8)],
    )
    given = make_page(words, seen, ignore=[False, False, True])
    page = evaluated(words, seen, ignore=[False, False, True])
    metric = HmeanIoU()
    metric.update(BOXES(given.prob_map).polygons, given.truth)
    assert page.counts.hmean == pytest.approx(float(metric.compute()["hmean"]))
    assert (page.counts.matched, page.counts.boxes, page.counts.words) == (1, 2, 2)


def test_one_box_over_two_words_is_merged_on_both_sides():
    left, right = (20, 40, 90, 60), (100, 40, 170, 60)
    page = evaluated([left, right], [((20, 40, 170, 60), 0.9)])
    assert causes_of(page) == ["merged", "merged"]
    assert causes_of(page, FALSE) == ["merged"]


def test_words_that_a_weak_bridge_merges_come_apart_at_a_higher_thresh():
    left, right = (20, 40, 90, 60), (100, 40, 170, 60)
    page = evaluated([left, right], [((20, 40, 170, 60), 0.45), (left, 0.95), (right, 0.95)])
    assert {(error.setting, error.value) for error in page.errors if error.kind == MISSED} == {("thresh", 0.5)}


def test_a_word_in_two_pieces_is_split():
    page = evaluated([LINE], [((20, 40, 92, 60), 0.9), ((108, 40, 180, 60), 0.9)])
    assert causes_of(page) == ["split"]
    assert causes_of(page, FALSE) == ["split", "split"]


def test_a_word_under_box_thresh_is_found_with_its_score():
    page = evaluated([LINE], [(LINE, 0.5)])
    (error,) = page.errors
    assert (error.cause, error.setting) == ("under a threshold", "box_thresh")
    assert error.value == error.score == pytest.approx(0.5, abs=0.02)
    assert page.curves["box_thresh"][0.4].matched == 1
    assert page.curves["box_thresh"][0.6].matched == 0


def test_a_word_under_thresh_is_found_with_a_lower_one():
    (error,) = evaluate_page(
        make_page([LINE], [(LINE, 0.45)]), replace(BOXES, thresh=0.5, box_thresh=0.4), TARGETS
    ).errors
    assert (error.cause, error.setting, error.value) == ("under a threshold", "thresh", 0.4)


def test_half_of_a_word_has_a_low_iou_and_the_missing_side_is_named():
    page = evaluated([LINE], [((20, 40, 84, 60), 0.9)])
    (missed, false) = page.errors
    assert missed.cause == false.cause == "low IoU"
    assert "right" in missed.detail


@pytest.mark.parametrize(
    ("word", "ink", "cause"),
    [
        ((20, 40, 100, 46), 20, "too small"),
        (LINE, 215, "faint"),
        ((-60, 40, 60, 60), 20, "cut by the page"),
        ((20, 40, 120, 41), 20, "masked"),
        ((20, 40, 40, 60), 20, "one character"),
        ((20, 20, 40, 180), 20, "unusual"),
        (LINE, 20, "other"),
    ],
)
def test_a_word_that_the_map_does_not_show_has_the_cause_of_its_look(word, ink, cause):
    assert causes_of(evaluated([word], [], ink=ink)) == [cause]


def test_a_word_under_an_ignored_region_is_masked():
    region = (10, 30, 200, 70)
    page = evaluated([LINE, region], [(LINE, 0.9)], ignore=[False, True])
    assert causes_of(page) == ["masked"]


def test_a_word_with_two_labels_is_labelled_twice():
    assert causes_of(evaluated([LINE, (21, 40, 181, 60)], [(LINE, 0.9)])) == ["labelled twice"]


def test_bare_paper_is_noise_and_textures_of_rules_and_print_differ():
    given = make_page([LINE], [])
    page = evaluated([LINE], [(LINE, 0.9), (BELOW, 0.9)])
    assert causes_of(page, FALSE) == ["noise"]  # Bare paper.
    image = given.image_hwc.copy()
    image[98:101, 20:180] = 10
    line = measure_texture(outline(BELOW), image[:, :, 0])
    assert line.longest_line == 1
    letters = measure_texture(
        np.array([[20, 40], [180, 40], [180, 60], [20, 60]], np.float32), given.image_hwc[:, :, 0]
    )
    assert letters.strokes > 3
    assert letters.uniform_columns > 0.9


def test_a_patch_of_turned_text_is_level():
    gray = np.full((SIDE, SIDE), 230, dtype=np.uint8)
    gray[50:150, 100:110] = 10
    patch = upright_patch(np.array([[100, 50], [110, 50], [110, 150], [100, 150]], np.float32), gray)
    assert patch.shape == (10, 100)
    assert patch.max() < 130


@pytest.mark.parametrize("far", [40_000, 900_000])
def test_a_label_that_reaches_far_beyond_the_page_is_measured_on_the_page(far):
    gray = np.full((60, 80), 200, dtype=np.uint8)
    square = Polygons.pack([[[0, 0], [far, 0], [far, far], [0, far]]])
    (shape,) = measure_shapes(square, gray, (0.0, 0.0, 80.0, 60.0))
    assert (shape.height, shape.contrast) == (pytest.approx(far), 0)
