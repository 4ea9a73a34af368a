"""Handwriting over the print: on receipts only, where nobody labels it."""

import numpy as np

from ocr.tools.synth.capture_style import choose_look
from ocr.tools.synth.handwriting import write_by_hand
from ocr.tools.synth.kinds import KINDS


def test_a_pen_leaves_thin_strokes_on_the_page() -> None:
    for seed in range(12):
        page = np.full((500, 300, 3), 240, dtype=np.uint8)
        write_by_hand(np.random.default_rng(seed), page, 16.0)
        assert 0.0002 < (page.min(axis=2) < 200).mean() < 0.12


def test_strokes_longer_than_the_page_are_cut_off() -> None:
    page = np.full((20, 15, 3), 240, dtype=np.uint8)
    for seed in range(12):
        write_by_hand(np.random.default_rng(seed), page, 16.0)
    assert (page < 200).any()


def test_a_third_of_the_receipts_and_no_form_is_written_on() -> None:
    rng = np.random.default_rng(0)
    receipts = np.mean([choose_look(rng, "crop", KINDS["receipt"].shares).handwritten for _ in range(300)])
    assert 0.25 < receipts < 0.45
    assert not any(choose_look(rng, "crop", KINDS["form"].shares).handwritten for _ in range(100))
