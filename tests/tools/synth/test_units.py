"""Words and lines: where one label ends and the next begins."""

import numpy as np
import pytest

from ocr.tools.synth import render_page
from ocr.tools.synth.kinds import set_page
from ocr.tools.synth.layout import UNITS, Layout, Run, Units, cap_height
from ocr.tools.synth.printer import Printer, Type
from ocr.tools.synth.text_path import ink_box

FACE = Type("DejaVuSansMono.ttf", 20)


def labels(units: Units, *texts: tuple[str, float, float], kind: Type = FACE) -> list[Run]:
    """The labels of texts, each printed at its (x, baseline)."""
    printer = Printer(np.random.default_rng(0), Layout(800, 100))
    for text, x, baseline in texts:
        printer.text(text, kind, x, baseline, can_fail=False)
    return printer.finish(units).runs


def texts(runs: list[Run]) -> list[str]:
    return [run.text for run in runs]


def test_a_line_goes_on_over_a_space_and_ends_at_a_wide_gap() -> None:
    assert texts(labels("lines", ("Org. tea  2.50", 10, 40))) == ["Org. tea", "2.50"]
    assert texts(labels("lines", ("TOTAL", 10, 40), ("RM", 82, 40), ("4.90", 400, 40))) == ["TOTAL RM", "4.90"]


def test_a_line_keeps_to_its_baseline_and_its_block() -> None:
    assert texts(labels("lines", ("above", 10, 40), ("below", 75, 60))) == ["above", "below"]
    printer = Printer(np.random.default_rng(0), Layout(800, 100))
    for printer.block in (1, 2):
        printer.text("12", FACE, 30.0 * printer.block, 40, can_fail=False)
    assert texts(printer.finish("lines").runs) == ["12", "12"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Net weight (g): 1,250.75", ["Net", "weight", "(g):", "1,250.75"]),
        ("3/29/68 non-menthol -", ["3/", "29/", "68", "non-", "menthol", "-"]),
    ],
)
def test_words_are_parted_by_spaces_and_after_hyphens_and_slashes(text: str, words: list[str]) -> None:
    assert texts(labels("words", (text, 10, 40))) == words
    assert texts(labels("lines", (text, 10, 40))) == [text]


def test_spaced_capitals_are_one_word() -> None:
    spaced = Type("DejaVuSans.ttf", 20, spaced=True)
    assert texts(labels("words", ("TOP SECRET", 10, 40), kind=spaced)) == ["TOP", "SECRET"]


@pytest.mark.parametrize("thermal", [False, True])
def test_words_lie_on_their_own_letters_and_do_not_overlap(thermal: bool) -> None:
    kind = Type("DejaVuSansMono.ttf", 60, thermal=thermal)
    first, second = (run.strip.box for run in labels("words", ("ab-HH", 10, 70), kind=kind))
    # Five columns of 0.6 em: the third ends where the second word begins.
    assert first[2] <= second[0]
    assert abs((first[2] + second[0]) / 2 - (10 + 3 * 0.602 * 60)) < 0.15 * 60


def test_a_dash_is_labelled_nearly_as_high_as_a_letter() -> None:
    (run,) = labels("words", ("-", 10, 40))
    assert run.strip.box[3] - run.strip.box[1] >= 0.7 * cap_height("DejaVuSansMono.ttf", 20)


def test_labels_leave_a_margin_around_the_ink_that_is_wider_for_words() -> None:
    cap = cap_height(FACE.face, FACE.size)
    (line,), (word,) = (labels(units, ("HH", 10, 40)) for units in ("lines", "words"))
    ink = ink_box(line.marks[0].coverage)
    assert ink is not None
    left, top, right, bottom = line.strip.box
    assert bottom - top == pytest.approx(ink[3] - ink[1] + (0.13 + 0.11) * cap, abs=0.6)
    assert right - left == pytest.approx(ink[2] - ink[0] + 2 * 0.15 * cap)
    assert word.strip.box[1] < top
    assert word.strip.box[3] > bottom


def test_text_that_leaves_the_paper_has_no_label() -> None:
    assert texts(labels("words", ("on off", 750, 40), ("under", 10, 110))) == ["on"]


def test_units_change_the_labels_and_nothing_else() -> None:
    lines, words = (render_page(0, 3, megapixels=(0.2, 0.2), units=units) for units in UNITS[::-1])
    np.testing.assert_array_equal(lines.image_hwc, words.image_hwc)
    assert len(words.words) > 1.3 * len(lines.words)
    layouts = (set_page(np.random.default_rng(0), (0.2, 0.2), units)[1] for units in UNITS)
    letters = [sorted("".join(texts(layout.runs)).replace(" ", "")) for layout in layouts]
    assert letters[0] == letters[1]
