"""Each rule: what it applies to, and what it leaves to the next."""

from dataclasses import replace
from pathlib import Path

import pytest

from ocr.inspect import causes
from ocr.inspect.causes import FALSE_RULES, MISSED_RULES, OTHER, cause_of_false, cause_of_miss, describe_sides
from ocr.inspect.evidence import FalseBox, LooseMatch, MissedWord
from ocr.inspect.gains import CURES
from ocr.inspect.shapes import Shape, Texture

LINE = Shape(height=16, length=120, angle=0, contrast=120, is_light=False, x=0.5, y=0.5)
PRINT = Texture(ink=0.2, strokes=2.0, longest_line=0.1, uniform_columns=0.6)
WORD = MissedWord(LINE)
BOX = FalseBox(LINE, PRINT, score=0.9)


def test_a_word_that_reaches_beyond_the_page_or_touches_its_edge_is_cut():
    assert causes.cut_by_page(replace(WORD, outside=0.4)) == "40% of it are beyond the page"
    assert causes.cut_by_page(replace(WORD, edge_distance=0.5)) == "it touches the edge of the page"
    assert causes.cut_by_page(replace(WORD, outside=0.05, edge_distance=2)) is None


def test_a_word_under_an_ignored_region_or_left_out_of_the_loss_is_masked():
    assert causes.masked(replace(WORD, under_ignored=0.7)) == "an ignored region covers 70% of it"
    assert "out of the loss" in causes.masked(replace(WORD, left_out=True))
    assert causes.masked(replace(WORD, under_ignored=0.3)) is None


def test_of_two_labels_at_one_place_one_is_too_many():
    assert causes.labelled_twice(replace(WORD, has_twin=True))
    assert causes.labelled_twice(WORD) is None


def test_one_box_over_several_words_merges_them_and_says_when_they_come_apart():
    assert causes.merged(replace(WORD, merged_with=1)) == "one box with another word"
    assert (
        causes.merged(replace(WORD, merged_with=2, apart_at=0.5)) == "one box with 2 other words; apart at thresh=0.5"
    )
    assert causes.merged(WORD) is None


def test_two_pieces_that_cover_half_of_a_word_split_it():
    assert causes.split(replace(WORD, pieces=2, pieces_cover=0.8)) == "2 boxes cover 80% of it"
    assert causes.split(replace(WORD, pieces=1, pieces_cover=0.8)) is None
    assert causes.split(replace(WORD, pieces=3, pieces_cover=0.2)) is None


@pytest.mark.parametrize("setting", ["box_thresh", "thresh", "min_size", "max_candidates"])
def test_the_threshold_that_hides_a_word_is_named(setting):
    assert setting in causes.under_threshold(replace(WORD, loose=LooseMatch(setting, 0.2, 0.55)))
    assert causes.under_threshold(WORD) is None


def test_a_box_of_the_wrong_size_says_by_how_much_and_where():
    told = causes.badly_sized(replace(WORD, iou=0.43, sides=(-30.0, 1.0, 0.2, 4.0)))
    assert told == "IoU 0.43: the box ends 30 px early left and reaches 4 px too far bottom"
    assert causes.badly_sized(replace(WORD, iou=0.05)) is None
    assert describe_sides((0.1, 0.2, 0.0, -0.3)) == "has another outline"


def test_text_of_few_pixels_is_too_small():
    assert causes.too_small(replace(WORD, shape=replace(LINE, height=5.2))) == "5.2 px at this size"
    assert causes.too_small(WORD) is None


def test_print_like_its_paper_is_faint():
    assert causes.faint(replace(WORD, shape=replace(LINE, contrast=20))) == "contrast 20 of 255"
    assert causes.faint(WORD) is None


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (replace(WORD, shape=replace(LINE, angle=-80)), "at an angle of -80 degrees"),
        (replace(WORD, shape=replace(LINE, is_light=True)), "light print on a dark ground"),
        (replace(WORD, relative_height=4), "4.0 x as high as the rest"),
        (WORD, None),
    ],
)
def test_text_of_a_rare_kind_is_unusual(word, told):
    assert causes.unusual(word) == told


def test_a_lone_character_is_one():
    assert causes.one_character(replace(WORD, shape=replace(LINE, length=20))) == "20 x 16 px stand alone"
    assert causes.one_character(WORD) is None


def test_a_false_box_over_several_words_merges_them():
    assert causes.box_over_words(replace(BOX, words_covered=3)) == "covers 3 words"
    assert causes.box_over_words(replace(BOX, words_covered=1)) is None


def test_a_false_box_in_a_word_of_other_boxes_is_a_piece_of_it():
    piece = replace(BOX, inside=0.9, covers=0.2, others_inside=1)
    assert causes.piece_of_word(piece) == "covers 20% of a word that other boxes cover too"
    assert "find" in causes.piece_of_word(replace(piece, word_found=True, others_inside=0))
    assert causes.piece_of_word(replace(piece, others_inside=0)) is None
    assert causes.piece_of_word(replace(piece, covers=0.6)) is None


def test_a_false_box_on_a_word_that_is_found_is_a_duplicate():
    assert causes.duplicate(replace(BOX, word_found=True, inside=0.9, covers=0.8, iou=0.7))
    assert causes.duplicate(replace(BOX, word_found=True, inside=0.1, covers=0.2)) is None
    assert causes.duplicate(replace(BOX, inside=0.9)) is None


def test_a_false_box_at_a_missed_word_has_the_wrong_size():
    assert "IoU 0.40 with a missed word" in causes.box_badly_sized(replace(BOX, iou=0.4))
    assert causes.box_badly_sized(replace(BOX, iou=0.4, word_found=True)) is None


def test_bars_and_figures_far_taller_than_text_are_a_logo_or_code():
    assert "bars" in causes.logo_or_code(replace(BOX, texture=replace(PRINT, uniform_columns=0.95, strokes=3)))
    assert causes.logo_or_code(replace(BOX, relative_height=4)) == "4.0 x as high as the text"
    assert causes.logo_or_code(BOX) is None


def test_a_straight_line_is_a_rule_and_a_thin_box_at_the_edge_a_border():
    assert causes.rule_or_border(replace(BOX, texture=replace(PRINT, longest_line=0.9))) == "a line along 90% of it"
    thin = replace(BOX, shape=replace(LINE, height=4), edge_distance=0.0)
    assert "edge of the page" in causes.rule_or_border(thin)
    assert causes.rule_or_border(replace(thin, edge_distance=9)) is None


def test_text_that_the_model_is_sure_of_has_no_label():
    assert "text without a label?" in causes.unlabelled_text(BOX)
    assert causes.unlabelled_text(replace(BOX, score=0.6)) is None
    assert causes.unlabelled_text(replace(BOX, texture=replace(PRINT, strokes=0.1))) is None
    assert causes.unlabelled_text(replace(BOX, shape=replace(LINE, contrast=10))) is None


def test_boxes_without_print_or_with_a_low_score_are_noise():
    assert causes.noise(replace(BOX, shape=replace(LINE, contrast=10))) == "contrast 10 of 255"
    assert causes.noise(replace(BOX, score=0.62)) == "score 0.62"
    assert causes.noise(BOX) is None


def test_what_was_seen_comes_before_what_is_suspected_and_nothing_seen_is_other():
    small = replace(WORD, shape=replace(LINE, height=5), merged_with=1)
    assert cause_of_miss(small)[0] == "merged"
    assert cause_of_miss(replace(small, merged_with=0))[0] == "too small"
    assert cause_of_miss(WORD)[0] == OTHER
    assert cause_of_false(replace(BOX, texture=replace(PRINT, strokes=0.1)))[0] == OTHER
    assert cause_of_false(replace(BOX, words_covered=2, word_found=True, inside=0.9))[0] == "merged"


def test_every_rule_has_a_test_here_and_every_cause_a_cure():
    tested = Path(__file__).read_text()
    for rule in (*MISSED_RULES.values(), *FALSE_RULES.values()):
        assert f"causes.{rule.__name__}(" in tested, rule
    assert set(CURES) == set(causes.CAUSES)
