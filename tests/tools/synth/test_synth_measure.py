"""What is measured on a page is what was drawn on it."""

import numpy as np
import pytest
from drawn_pages import make_page

from ocr.tools.synth.measure import find_lines, is_visible, measure_page


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("scale", [1, 2])
def test_levels_and_heights_are_those_of_the_page_at_the_models_size(labelled: bool, scale: int) -> None:
    image, boxes = make_page(scale=scale)
    found = measure_page(image, image.shape[1::-1], boxes if labelled else None)
    assert (found.width, found.height) == (480 * scale, 960 * scale)
    # Without labels, wide gaps between words part a line.
    assert found.lines == 5 if labelled else 5 <= found.lines <= 15
    assert found.line_height == pytest.approx(18, abs=1)
    assert found.paper == pytest.approx(240, abs=2)
    assert found.ink == pytest.approx(60, abs=25)
    assert found.saturation == found.background == 0


def test_noise_blur_colour_and_surroundings_show_in_their_own_numbers() -> None:
    image, boxes = make_page()
    clean = measure_page(image, (480, 960), boxes)
    grainy = measure_page(make_page(noise=4.0)[0], (480, 960), boxes)
    assert clean.noise < 0.1
    assert grainy.noise == pytest.approx(4.0, rel=0.15)
    soft = image.astype(np.float64)
    soft = (soft + np.roll(soft, 1, 1) + np.roll(soft, 2, 1) + np.roll(soft, 3, 1)) / 4
    assert measure_page(soft.astype(np.uint8), (480, 960), boxes).sharpness < 0.7 * clean.sharpness
    framed, tinted = image.copy(), image.copy()
    framed[:, :48] = 20
    tinted[..., 2] -= 30
    assert measure_page(framed, (480, 960), boxes).background == pytest.approx(0.1, abs=0.02)
    assert measure_page(tinted, (480, 960), boxes).saturation == pytest.approx(30, abs=2)


def test_a_page_without_text_has_no_lines_and_no_height() -> None:
    blank = measure_page(np.full((300, 200, 3), 230, dtype=np.uint8), (200, 300))
    assert blank.lines == 0
    assert np.isnan(blank.line_height)
    assert blank.paper == 230


def test_rules_are_not_taken_for_lines_of_text() -> None:
    image, _ = make_page()
    gray = np.ascontiguousarray(image[..., 0])
    before = find_lines(gray)
    gray[700:702, 40:440] = 0
    gray[800:900, 40:140] = 0
    np.testing.assert_array_equal(find_lines(gray), before)


def test_print_that_is_as_pale_as_its_paper_is_not_visible() -> None:
    for ink, visible in ((60, True), (200, True), (232, False)):
        image, boxes = make_page(ink=ink)
        left, top, right, bottom = boxes[0]
        polygon = np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
        assert is_visible(image[..., 0], polygon) is visible
