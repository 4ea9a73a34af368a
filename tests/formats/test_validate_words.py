"""Words are judged in one place, and the culprit is named."""

import sys
from typing import Any

import numpy as np
import pytest
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import Page, Word
from ocr.formats.validate import points_error, to_polygons

SQUARE = [[0, 0], [9, 0], [9, 5], [0, 5]]


def test_words_become_packed_polygons():
    triangle = [(1.5, 2), (3, 4), (5, 6)]
    polygons = to_polygons(Page((Word("1", SQUARE, "a"), Word("2", triangle, None, True))), "val.json: a.jpg")
    assert polygons.offsets.tolist() == [0, 4, 7]
    assert polygons.vertices.tolist() == [*SQUARE, [1.5, 2], [3, 4], [5, 6]]
    assert polygons.vertices.dtype == np.float32
    assert polygons.ignore.tolist() == [False, True]
    assert polygons.texts == ("a", None)


def test_a_page_without_words_has_no_polygons():
    assert len(to_polygons(Page(), "val.json: a.jpg")) == 0


def test_points_may_be_nested_once_more():
    assert to_polygons(Page((Word("1", [SQUARE]),)), "x").vertices.tolist() == SQUARE


@pytest.mark.parametrize(
    ("points", "fault"),
    [
        ([[0, 0], [9, 0]], "2 points"),
        ([], "0 points"),
        ([[]], "[] for a point"),
        (None, "a list of points"),
        ("abc", "a list of points"),
        (5, "a list of points"),
        ({"x": 1, "y": 2, "z": 3}, "a list of points"),
        ([[0, 0], ["9", "0"], [9, 5]], "'9' for a coordinate"),
        ([[0, 0], [True, 0], [9, 5]], "True for a coordinate"),
        ([[0, 0], [None, 0], [9, 5]], "None for a coordinate"),
        ([[0, 0], [float("nan"), 0], [9, 5]], "nan for a coordinate, which is not finite"),
        ([[0, 0], [float("-inf"), 0], [9, 5]], "-inf for a coordinate, which is not finite"),
        ([[0, 0], [1e300, 0], [9, 5]], "1e+300 for a coordinate, which is too large"),
        ([[0, 0], [10**400, 0], [9, 5]], "00... for a coordinate, which is too large"),
        ([[0, 0], [1e6 + 1, 0], [9, 5]], "1000001.0 for a coordinate, which is too large"),
        ([[0, 0], [9], [9, 5]], "[9] for a point"),
        ([[0, 0], [9, 0, 1], [9, 5]], "[9, 0, 1] for a point"),
        ([[0, 0], "ab", [9, 5]], "'ab' for a point"),
        ([[0, 0], {1: 2, 3: 4}, [9, 5]], "{1: 2, 3: 4} for a point"),
        ([0, 0, 9, 0, 9, 5], "0 for a point"),
        ([[[SQUARE]]], "for a point"),
        ([SQUARE, SQUARE], "for a point"),
    ],
)
def test_points_that_make_no_polygon_are_refused_with_the_word_and_what_is_wrong(points, fault):
    page = Page((Word("0001", SQUARE), Word("0002", points)))
    with rejects(AnnotationError, setting="points", value=points) as caught:
        to_polygons(page, "val.json: a.jpg")
    assert str(caught.value).startswith("val.json: a.jpg: word 0002: points ")
    assert fault in str(caught.value)
    assert len(str(caught.value)) < 320
    assert points_error(points) is not None


def test_sound_points_have_no_fault():
    assert points_error(SQUARE) is None
    assert points_error([SQUARE]) is None
    assert points_error([[0, 0], [1e6, 0], [9, 5]]) is None


def test_a_transcription_that_is_not_text_is_refused():
    page = Page((Word("0001", SQUARE, "fine"), Word("0002", SQUARE, 2024)))
    with rejects(AnnotationError, setting="transcription", value=2024) as caught:
        to_polygons(page, "val.json: a.jpg")
    assert str(caught.value).startswith("val.json: a.jpg: word 0002: ")


def test_a_flag_that_is_neither_true_nor_false_is_refused():
    page = Page((Word("0001", SQUARE), Word("0002", SQUARE, "a", 1)))
    with rejects(AnnotationError, setting="ignore", value=1):
        to_polygons(page, "val.json: a.jpg")


def test_sound_words_are_checked_all_at_once_with_one_call_per_word():
    page = Page(tuple(Word(str(at), [[at, 0], [at + 9.5, 0], [at + 9.5, 5], [at, 5]], "x") for at in range(55)))
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        to_polygons(page, "x")
    finally:
        sys.setprofile(before)
    assert calls < 55 + 20
