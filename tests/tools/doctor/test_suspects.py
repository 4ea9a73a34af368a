"""Labels that a map contradicts are suspected, each for what is wrong with it; right ones are not."""

from dataclasses import replace

import numpy as np
import pytest
from evaluated_pages import BOXES, SIDE, Box, make_page, outline

from ocr.geometry.orientation import orientation_matrix
from ocr.geometry.polygons import Polygons
from ocr.inspect.page import PageInput
from ocr.tools.doctor.suspects import COMMON, Suspect, find_suspects, rank_suspects

# Lines of several lengths, not symmetric in any way; the last two share a row.
LINES: list[Box] = [
    (20, 20, 150, 38),
    (20, 50, 220, 68),
    (20, 80, 110, 98),
    (20, 110, 130, 128),
    (20, 140, 90, 158),
    (150, 140, 230, 158),
]


def page(labels: list[Box], ignore: list[bool] | None = None) -> PageInput:
    """All of LINES are printed and seen; these labels are there."""
    seen = make_page(LINES, [(line, 0.95) for line in LINES])
    return replace(seen, truth=Polygons.pack([outline(label) for label in labels], ignore))


def suspects(labels: list[Box], ignore: list[bool] | None = None) -> list[Suspect]:
    return find_suspects(page(labels, ignore), BOXES)


def bounds(points: np.ndarray) -> list[float]:
    return [*points.min(axis=0).tolist(), *points.max(axis=0).tolist()]


def test_labels_on_the_text_are_not_suspected():
    assert suspects(LINES) == []


def test_text_without_a_label_is_missing_and_its_box_is_proposed():
    (found,) = suspects(LINES[:2] + LINES[3:])
    assert (found.kind, found.word) == ("missing", None)
    assert found.score > 0.4
    (proposed,) = found.proposal
    assert bounds(proposed) == pytest.approx(LINES[2], abs=3)


def test_a_second_label_in_the_same_place_is_a_duplicate_that_is_to_go():
    (found,) = suspects([*LINES, (21, 51, 221, 69)])
    assert (found.kind, found.proposal) == ("duplicate", ())
    assert found.word in (1, 6)
    assert found.score > 0.9


@pytest.mark.parametrize(("x", "y"), [(0, 13), (0, -13), (60, 8), (-15, 12)])
def test_a_label_beside_its_text_is_shifted_and_moved_back(x, y):
    left, top, right, bottom = LINES[4]
    moved = (left + x, top + y, right + x, bottom + y)
    (found,) = suspects([*LINES[:4], moved, LINES[5]])
    assert (found.kind, found.word) == ("shifted", 4)
    assert bounds(found.proposal[0]) == pytest.approx(LINES[4], abs=3)


@pytest.mark.parametrize(("first", "second"), [(2, 3), (4, 5)])
def test_one_label_for_two_texts_is_merged_and_taken_apart(first, second):
    one, other = LINES[first], LINES[second]
    both = (min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3]))
    rest = [line for at, line in enumerate(LINES) if at not in (first, second)]
    (found,) = suspects([both, *rest])
    assert (found.kind, found.word) == ("merged", 0)
    assert [bounds(piece) for piece in found.proposal] == [pytest.approx(line, abs=3) for line in (one, other)]


def test_a_label_on_blank_paper_has_no_support():
    (found,) = suspects([*LINES, (60, 200, 180, 220)])
    assert (found.kind, found.word, found.proposal) == ("unsupported", 6, None)


def test_regions_to_ignore_are_not_suspected_and_neither_is_text_in_them():
    blank, doubled, around = (60, 200, 180, 220), LINES[1], (10, 105, 240, 165)
    labels = [*LINES[:3], blank, doubled, around]
    assert suspects(labels, [False] * 3 + [True] * 3) == []


@pytest.mark.parametrize("orientation", [2, 3, 4, 5, 6, 7, 8])
def test_labels_of_a_turned_page_are_one_suspect_with_the_way_back(orientation):
    right = page(LINES)
    turn = orientation_matrix(orientation, SIDE, SIDE)
    wrong = replace(right, truth=right.truth.moved(np.linalg.inv(turn)))
    (found,) = find_suspects(wrong, BOXES)
    assert found.kind == "page"
    back = wrong.truth.moved(found.matrix)
    assert back.bounds == pytest.approx(right.truth.bounds, abs=1e-3)


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.6])
def test_labels_of_a_page_of_another_size_are_one_suspect_with_the_scale(scale):
    right = page(LINES)
    wrong = replace(right, truth=right.truth.moved(np.diag([scale, scale, 1.0])))
    (found,) = find_suspects(wrong, BOXES)
    assert found.kind == "page"
    assert wrong.truth.moved(found.matrix).bounds == pytest.approx(right.truth.bounds, abs=3)


def test_labels_that_fit_in_no_frame_are_one_suspect_without_a_fix():
    elsewhere: list[Box] = [(180, 180 + 12 * at, 190 + 3 * at, 186 + 12 * at) for at in range(5)]
    (found,) = suspects(elsewhere)
    assert (found.kind, found.matrix) == ("page", None)


def test_pages_without_labels_or_without_text():
    assert {found.kind for found in suspects([])} == {"missing"}
    assert find_suspects(make_page([], []), BOXES) == []


def test_a_kind_that_many_labels_are_suspected_of_is_trusted_less():
    common = [("a", Suspect("merged", 0.9, "")) for _ in range(40)]
    ranked = rank_suspects([*common, ("b", Suspect("shifted", 0.6, ""))], labels=round(10 / COMMON))
    at = [suspect.kind for _, suspect in ranked].index("shifted")
    assert 0 < at < 10
    assert [suspect.score for _, suspect in ranked] == sorted((s.score for _, s in ranked), reverse=True)
