"""Kinds of page: each has its own layout, and labels that hold what the pixels show."""

import cv2
import numpy as np
import pytest
import shapely
from rejection import rejects

from ocr.errors import ConfigError
from ocr.tools.synth import SynthPage, render_page
from ocr.tools.synth.kinds import KINDS, check_kind, check_units, choose_kind, set_page
from ocr.tools.synth.layout import Layout, Units
from ocr.tools.synth.printer import Printer
from ocr.tools.synth.sheet import Faces, Sheet

SIZE = (0.5, 0.5)


@pytest.fixture(scope="module", params=KINDS)
def page(request: pytest.FixtureRequest) -> SynthPage:
    return render_page(6, 1, megapixels=SIZE, units="words", kind=request.param)


def test_every_labelled_box_has_contrast(page: SynthPage) -> None:
    gray = cv2.cvtColor(page.image_hwc, cv2.COLOR_RGB2GRAY)
    assert sum(not word.ignore for word in page.words) > 40
    for word in page.words:
        (left, top), (right, bottom) = np.min(word.points, axis=0), np.max(word.points, axis=0)
        inside = gray[int(top) : int(bottom) + 2, int(left) : int(right) + 2]
        assert word.ignore or np.ptp(inside) > 20, word.text


def test_words_do_not_overlap(page: SynthPage) -> None:
    polygons = [shapely.Polygon(word.points) for word in page.words if not word.ignore]
    tree = shapely.STRtree(polygons)
    for first, second in tree.query(polygons).T:
        shared = polygons[first].intersection(polygons[second]).area
        assert first == second or shared < 0.2 * min(polygons[first].area, polygons[second].area)


def test_kinds_have_layouts_of_their_own() -> None:
    texts = {kind: texts_of(kind) for kind in KINDS}
    assert any("\u2610" in texts["form"][index] for index in range(4))
    assert all(len(texts["letter"][index]) > 30 for index in range(4))
    assert all(any("total" in text.lower() or "due" in text.lower() for text in page) for page in texts["invoice"])
    assert not any("\u2610" in page for kind in ("receipt", "letter", "invoice") for page in texts[kind])


def texts_of(kind: str) -> list[list[str]]:
    pages = (set_page(np.random.default_rng(index), SIZE, "words", kind)[1] for index in range(4))
    return [[run.text for run in page.runs] for page in pages]


def test_signatures_are_regions_to_ignore() -> None:
    runs = [run for index in range(6) for run in set_page(np.random.default_rng(index), SIZE, "words", "form")[1].runs]
    signatures = [run for run in runs if run.illegible and not run.text]
    assert signatures
    # A signature is not parted by the print that it crosses, nor does it take part in it.
    assert all(len(run.marks) == 1 for run in signatures)


def test_handwriting_keeps_to_its_field_and_off_the_print() -> None:
    printer = Printer(np.random.default_rng(0), Layout(900, 200))
    sheet = Sheet(printer, 20.0, 45.0, 10.0, Faces.choose(printer.rng, 1.0))
    sheet.text("Printed", 20, 5, sheet.kind("DejaVuSans.ttf"))
    sheet.by_hand("one two three four five six seven", 1, 5, 1.8, right=12)
    sheet.by_hand("over", 21, 5, 1.8, right=40)
    words = {run.text: run.strip.box for run in printer.finish("words").runs}
    assert "one" in words
    assert set(words) < {"Printed", "one", "two", "three", "four", "five"}
    assert max(box[2] for text, box in words.items() if text != "Printed") <= 12.5 * 20


def test_a_date_by_hand_is_parted_like_a_printed_one_and_one_line_all_the_same() -> None:
    parted: dict[Units, list[str]] = {"words": ["3/", "29/", "68"], "lines": ["3/29/68"]}
    for units, texts in parted.items():
        printer = Printer(np.random.default_rng(0), Layout(900, 200))
        Sheet(printer, 20.0, 45.0, 10.0, Faces.choose(printer.rng, 1.0)).by_hand("3/29/68", 1, 5, 1.8, right=40)
        assert [run.text for run in printer.finish(units).runs] == texts


def test_mixed_pages_are_of_all_kinds() -> None:
    rng = np.random.default_rng(0)
    assert {choose_kind(rng, "mixed") for _ in range(40)} == set(KINDS)
    assert choose_kind(rng, "letter") == "letter"
    several = [choose_kind(rng, check_kind("form,receipt,form")) for _ in range(60)]
    assert several.count("form") > several.count("receipt") > 5
    assert len(set(several)) == 2
    for wrong, name in (("form,recipe", "recipe"), ("mixed,form", "mixed"), ("", "")):
        with rejects(ConfigError, setting="kind", value=name):
            check_kind(wrong)


def test_usual_units_are_lines_on_receipts_and_words_on_the_rest() -> None:
    for kind in KINDS:
        usual = render_page(0, 0, megapixels=(0.2, 0.2), kind=kind, units="usual")
        expected = render_page(0, 0, megapixels=(0.2, 0.2), kind=kind, units="lines" if kind == "receipt" else "words")
        assert usual.words == expected.words
    with rejects(ConfigError, setting="units", value="letters"):
        check_units("letters")
