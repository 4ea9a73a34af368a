"""Each rule: what it applies to, and what it leaves to the next."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ocr.inspect import causes
from ocr.inspect.causes import (
    FALSE_RULES,
    MISSED_RULES,
    OTHER,
    FalseBox,
    MissedWord,
    cause_of_false,
    cause_of_miss,
    describe_sides,
)
from ocr.inspect.inspection import FIXES
from ocr.inspect.page import LooseMatch
from ocr.inspect.shapes import Shape, Texture

LINE = Shape(height=16, length=120, angle=0, contrast=120, is_light=False, x=0.5, y=0.5)
PRINT = Texture(ink=0.2, strokes=2.0, longest_line=0.1, uniform_columns=0.6)
WORD = MissedWord(LINE)
BOX = FalseBox(LINE, PRINT, score=0.9)
PIECE = replace(BOX, inside=0.9, covers=0.2, others_inside=1)
THIN = replace(BOX, shape=replace(LINE, height=4), edge_distance=0.0)


# What each rule applies to. What it says of them is in tests/snapshots/inspect.txt.
CASES: list[tuple[Callable[[Any], str | None], Any]] = [
    (causes.cut_by_page, replace(WORD, outside=0.4)),
    (causes.cut_by_page, replace(WORD, outside=0.1)),
    (causes.cut_by_page, replace(WORD, edge_distance=0.5)),
    (causes.masked, replace(WORD, under_ignored=0.7)),
    (causes.masked, replace(WORD, left_out=True)),
    (causes.labelled_twice, replace(WORD, has_twin=True)),
    (causes.merged, replace(WORD, merged_with=1)),
    (causes.merged, replace(WORD, merged_with=2, apart_at=0.5)),
    (causes.split, replace(WORD, pieces=2, pieces_cover=0.8)),
    *(
        (causes.under_threshold, replace(WORD, loose=LooseMatch(setting, 0.2, 0.55)))
        for setting in ("box_thresh", "thresh", "min_size", "max_candidates")
    ),
    (causes.low_iou, replace(WORD, iou=0.43, sides=(-30.0, 1.0, 0.2, 4.0))),
    (causes.low_iou, replace(WORD, iou=0.1, sides=(0.1, 0.2, 0.0, -0.3))),
    (causes.too_small, replace(WORD, shape=replace(LINE, height=5.2))),
    (causes.faint, replace(WORD, shape=replace(LINE, contrast=20))),
    (causes.unusual, replace(WORD, shape=replace(LINE, angle=-80))),
    (causes.unusual, replace(WORD, shape=replace(LINE, is_light=True))),
    (causes.unusual, replace(WORD, relative_height=4)),
    (causes.one_character, replace(WORD, shape=replace(LINE, length=20))),
    (causes.box_over_words, replace(BOX, words_covered=3)),
    (causes.piece_of_word, PIECE),
    (causes.piece_of_word, replace(PIECE, word_found=True, others_inside=0)),
    (causes.duplicate, replace(BOX, word_found=True, inside=0.9, covers=0.8, iou=0.7)),
    (causes.box_of_low_iou, replace(BOX, iou=0.4)),
    (causes.logo_or_code, replace(BOX, texture=replace(PRINT, uniform_columns=0.95, strokes=3))),
    (causes.logo_or_code, replace(BOX, relative_height=4)),
    (causes.rule_or_border, replace(BOX, texture=replace(PRINT, longest_line=0.9))),
    (causes.rule_or_border, THIN),
    (causes.unlabelled_text, BOX),
    (causes.noise, replace(BOX, shape=replace(LINE, contrast=10))),
    (causes.noise, replace(BOX, score=0.62)),
]
LEFT_TO_OTHERS: list[tuple[Callable[[Any], str | None], Any]] = [
    (causes.cut_by_page, replace(WORD, outside=0.05, edge_distance=2)),
    (causes.masked, replace(WORD, under_ignored=0.3)),
    (causes.labelled_twice, WORD),
    (causes.merged, WORD),
    (causes.split, replace(WORD, pieces=1, pieces_cover=0.8)),
    (causes.split, replace(WORD, pieces=3, pieces_cover=0.2)),
    (causes.under_threshold, WORD),
    (causes.low_iou, replace(WORD, iou=0.05)),
    (causes.too_small, WORD),
    (causes.faint, WORD),
    (causes.unusual, WORD),
    (causes.one_character, WORD),
    (causes.box_over_words, replace(BOX, words_covered=1)),
    (causes.piece_of_word, replace(PIECE, others_inside=0)),
    (causes.piece_of_word, replace(PIECE, covers=0.6)),
    (causes.duplicate, replace(BOX, word_found=True, inside=0.1, covers=0.2)),
    (causes.duplicate, replace(BOX, inside=0.9)),
    (causes.box_of_low_iou, replace(BOX, iou=0.4, word_found=True)),
    (causes.logo_or_code, BOX),
    (causes.rule_or_border, replace(THIN, edge_distance=9)),
    (causes.unlabelled_text, replace(BOX, score=0.6)),
    (causes.unlabelled_text, replace(BOX, texture=replace(PRINT, strokes=0.1))),
    (causes.unlabelled_text, replace(BOX, shape=replace(LINE, contrast=10))),
    (causes.noise, BOX),
]


def name_of(value: object) -> str | None:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("rule", "evidence"), CASES, ids=name_of)
def test_a_rule_applies_to_what_it_is_about(rule, evidence):
    assert rule(evidence)


@pytest.mark.parametrize(("rule", "evidence"), LEFT_TO_OTHERS, ids=name_of)
def test_a_rule_leaves_the_rest_to_the_next(rule, evidence):
    assert rule(evidence) is None


@pytest.mark.parametrize("setting", ["box_thresh", "thresh", "min_size", "max_candidates"])
def test_the_threshold_that_hides_a_word_is_named(setting):
    assert setting in causes.under_threshold(replace(WORD, loose=LooseMatch(setting, 0.2, 0.55)))


def test_a_box_of_the_wrong_size_says_by_how_much_and_where():
    detail = causes.low_iou(replace(WORD, iou=0.43, sides=(-30.0, 1.0, 0.2, 4.0)))
    assert all(part in detail for part in ("0.43", "30 px", "left", "4 px", "bottom"))
    assert "1 px" not in detail
    assert "px" not in describe_sides((0.1, 0.2, 0.0, -0.3))


def test_what_was_seen_comes_before_what_is_suspected_and_nothing_seen_is_other():
    small = replace(WORD, shape=replace(LINE, height=5), merged_with=1)
    assert cause_of_miss(small)[0] == "merged"
    assert cause_of_miss(replace(small, merged_with=0))[0] == "too small"
    assert cause_of_miss(WORD)[0] == OTHER
    assert cause_of_false(replace(BOX, texture=replace(PRINT, strokes=0.1)))[0] == OTHER
    assert cause_of_false(replace(BOX, words_covered=2, word_found=True, inside=0.9))[0] == "merged"


def test_every_rule_has_both_cases_and_every_cause_a_fix():
    rules = {rule.__name__ for rule in (*MISSED_RULES.values(), *FALSE_RULES.values())}
    assert {rule.__name__ for rule, _ in CASES} == {rule.__name__ for rule, _ in LEFT_TO_OTHERS} == rules
    assert set(FIXES) == set(causes.CAUSES)
