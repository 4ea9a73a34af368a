"""CLEval at its threshold: a share of exactly three tenths is enough, as published, which compares in float32."""

import numpy as np
import pytest

from ocr.evaluation.cleval_page import Page, Words
from ocr.geometry.kernels.overlap import read_rings

TALL = [[0, 0], [100, 0], [100, 100], [0, 100]]


def word(left, top, right, bottom):
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


def count(detections, words, ignore, min_precision=0.3):
    def side(outlines, texts):
        rings = read_rings([np.array(outline, np.float64) for outline in outlines], "words")
        return Words(rings, tuple(texts), np.zeros(len(outlines), np.bool_))

    texts = ["word"] * len(words)
    page = Page(side(detections, [None] * len(detections)), side(words, texts), 0.5, True)
    return page.count(np.full(len(words), ignore), min_precision, False)


@pytest.mark.parametrize(("height", "found"), [(30, 4), (29, 0), (31, 4)])
def test_a_detection_of_which_exactly_three_tenths_are_in_the_word_finds_it(height, found):
    assert count([TALL], [word(0, 0, 100, height)], ignore=False).found_chars == found


@pytest.mark.parametrize(("height", "ignored"), [(30, True), (29, False), (31, True)])
def test_a_detection_of_which_exactly_three_tenths_are_in_an_ignored_word_does_not_count(height, ignored):
    # Between the centres of two characters, so that it covers none.
    narrow = word(14, 0, 24, 100)
    assert (count([narrow], [word(0, 0, 100, height)], ignore=True).det_chars == 0) == ignored


@pytest.mark.parametrize(("height", "ignored"), [(15, True), (14, False)])
def test_several_ignored_words_are_enough_if_they_hold_exactly_three_tenths_together(height, ignored):
    words = [word(0, 0, 100, height), word(0, 85, 100, 85 + height)]
    assert (count([TALL], words, ignore=True).det_chars == 0) == ignored
