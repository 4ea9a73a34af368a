"""What printers do to the ink stays on the ink, and leaves it readable."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ocr.tools.synth.capture_style import Look
from ocr.tools.synth.fonts import draw_text
from ocr.tools.synth.ink_effects import dots, fade, gaps, press, spread

EM = 30.0


def make_ink() -> NDArray[np.uint8]:
    """A line of text as an ink layer, with bare paper around it."""
    coverage = draw_text("TOTAL 48.20", "DejaVuSansMono.ttf", int(EM)).coverage
    plane = np.pad(coverage, 20) // 255 * np.uint8(200)
    return np.repeat(plane[..., None], 3, axis=2)


@pytest.mark.parametrize("printer", ["laser", "thermal", "matrix"])
def test_bare_paper_stays_bare(printer: str) -> None:
    blank = np.full((60, 80, 3), 240, dtype=np.uint8)
    for seed in range(20):
        pressed = press(np.random.default_rng(seed), blank, blank.copy(), Look(printer), EM)  # type: ignore[arg-type]
        np.testing.assert_array_equal(pressed, blank)


@pytest.mark.parametrize("effect", [spread, dots, gaps, lambda rng, ink, _: fade(rng, ink)])
def test_every_effect_changes_the_print_and_keeps_part_of_it(effect: Callable[..., NDArray[np.uint8]]) -> None:
    ink, changed = make_ink(), 0
    for seed in range(12):
        after = effect(np.random.default_rng(seed), ink, EM)
        changed += not np.array_equal(after, ink)
        assert after.mean() > 0.25 * ink.mean()
        # No effect carries ink further than a twentieth of an em and a pixel.
        assert not after[:17].any()
        assert not after[:, :17].any()
    assert changed >= 4


def test_a_matrix_printer_leaves_dots_inside_a_solid_bar() -> None:
    bar = np.full((90, 90, 3), 200, dtype=np.uint8)
    rows = dots(np.random.default_rng(1), bar, EM)[..., 0].astype(int)
    assert rows.std() > 10
    # The dots repeat: the bar correlates with itself a period away.
    line = rows.mean(axis=0) - rows.mean()
    spectrum = np.abs(np.fft.rfft(line))
    assert spectrum.max() > 5 * np.median(spectrum)


def test_fading_is_uneven_along_the_sheet() -> None:
    solid = np.full((400, 200, 3), 200, dtype=np.uint8)
    bands = [fade(np.random.default_rng(seed), solid)[::100].mean(axis=(1, 2)) for seed in range(8)]
    assert np.median([np.ptp(band) for band in bands]) > 10


def test_thermal_print_is_pale_in_places_on_many_sheets() -> None:
    blank, printed = (np.full((300, 120, 3), level, dtype=np.uint8) for level in (240, 40))
    rows = [press(np.random.default_rng(seed), blank, printed, Look("thermal"), 8.0)[::20, 60, 0] for seed in range(16)]
    assert 4 <= sum(np.ptp(row.astype(int)) > 15 for row in rows) <= 15
