"""Receipts in other scripts: every letter has a shape of its own, and the layout is the Latin one."""

import string
from dataclasses import replace

import numpy as np
import pytest

from ocr.errors import StageError
from ocr.tools.synth import render_page
from ocr.tools.synth.fonts import FAMILIES, PILLOW_FACE, draw_text, load_font
from ocr.tools.synth.printer import Type
from ocr.tools.synth.receipt import TABLES, choose_style, in_some_script, write_receipt

FACES = sorted({face for pairs in FAMILIES.values() for pair in pairs for face in pair if face.startswith("DejaVu")})


@pytest.mark.parametrize("script", TABLES)
def test_every_face_draws_every_letter_of_a_script(script: str) -> None:
    letters = string.ascii_lowercase.translate(TABLES[script])
    assert len(set(letters)) == 26
    for face in FACES:
        font = load_font(face, 24)
        drawn = {bytes(font.getmask(letter)) for letter in letters}
        assert len(drawn) == 26
        assert bytes(font.getmask("\ufffe")) not in drawn, face


def test_some_receipts_change_their_letters_and_faces_and_nothing_else() -> None:
    changed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        style = replace(choose_style(rng), second="cmss10.ttf")
        rows = write_receipt(rng, style)
        other, written = in_some_script(rng, style, rows)
        if written is rows:
            assert other is style
            continue
        changed += 1
        assert all(face.startswith("DejaVu") for face in (other.regular, other.bold, other.headline, other.second))
        assert [[len(cell.text) for cell in row.cells] for row in written] == [
            [len(cell.text) for cell in row.cells] for row in rows
        ]
        assert not any(letter in string.ascii_letters for row in written for cell in row.cells for letter in cell.text)
    assert 1 <= changed <= 12


def test_pages_come_in_other_scripts_too_and_do_not_claim_to_be_english() -> None:
    for index in range(90):
        page = render_page(0, index, megapixels=(0.05, 0.05))
        if any(word.language == "und" for word in page.words):
            break
    else:
        pytest.fail("90 receipts in Latin letters")
    letters = {letter for word in page.words for letter in word.text or ""}
    assert letters & {letter for table in TABLES.values() for letter in map(chr, table.values())}


@pytest.mark.parametrize(("face", "text"), [("cmss10.ttf", "итог"), (PILLOW_FACE, "£4.20"), ("cmtt10.ttf", "τεα")])
def test_a_face_that_lacks_a_letter_is_refused_and_has_a_stand_in(face: str, text: str) -> None:
    with pytest.raises(StageError) as caught:
        draw_text(text, face, 20)
    assert caught.value.setting == "face"
    assert caught.value.value == face
    assert Type(face, 20).for_text(text).draw(text).coverage.any()
