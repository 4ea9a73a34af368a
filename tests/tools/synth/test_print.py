"""What is printed: typefaces, cut text, marks over the edge, dots of thermal print."""

import string

import numpy as np

from ocr.tools.synth.fonts import FAMILIES, draw_text, fit_text, load_font, text_width
from ocr.tools.synth.ink_effects import blend
from ocr.tools.synth.layout import Mark


def test_every_typeface_draws_every_letter_and_digit() -> None:
    for face in {name for pairs in FAMILIES.values() for pair in pairs for name in pair}:
        font = load_font(face, 24)
        missing = bytes(font.getmask("\ufffe"))
        drawn = {letter: bytes(font.getmask(letter)) for letter in string.ascii_letters + string.digits + "$%&@#"}
        assert missing not in drawn.values(), face
        assert len(set(drawn.values())) > 55, face


def test_text_is_cut_to_its_slot() -> None:
    face = "DejaVuSansMono.ttf"
    cut = fit_text("GRILLED CROISSANT", face, 20, 90)
    assert "GRILLED CROISSANT".startswith(cut)
    assert text_width(cut, face, 20) <= 90
    assert fit_text("Tea", face, 20, 90) == "Tea"


def test_a_mark_over_the_edge_is_cut_off() -> None:
    paper = np.full((10, 10, 3), 250, dtype=np.uint8)
    full = np.ones(10, dtype=np.float32)
    square = np.full((6, 6), 255, dtype=np.uint8)
    for x, y in ((-3, -3), (7, 7), (40, 0)):
        blend(paper, Mark(square, x, y, (0, 0, 0)), full, full)
    assert (paper[..., 0] == 0).sum() == 18


def test_a_large_thermal_line_shows_its_dots_at_the_size_asked_for() -> None:
    plain = draw_text("TOTAL", "DejaVuSansMono.ttf", 72)
    dots = draw_text("TOTAL", "DejaVuSansMono.ttf", 72, thermal=True)
    assert np.abs(np.subtract(plain.coverage.shape, dots.coverage.shape)).max() <= 6
    assert np.abs(plain.top - dots.top) <= 4
    # Enlarged dots change more gently than outlines drawn at full size.
    steps = [np.abs(np.diff(glyphs.coverage.astype(int), axis=1)).max() for glyphs in (plain, dots)]
    assert steps[1] < steps[0]
