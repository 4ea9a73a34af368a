"""Receipts in other scripts: Latin letters replaced one by one, so that shapes and widths vary and the layout stays.

The words mean nothing; a detector does not read them. Only scripts that all DejaVu faces have, and that run from left
to right without joining, are here: anything else needs typefaces that no installed package brings.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ocr.tools.synth.content import Line, Style
from ocr.tools.synth.phrases import chance, pick

SHARE = 0.06
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = {
    "cyrillic": "абцдефгхийклмнопщрстувжьыз",
    "greek": "αβψδεφγηιξκλμνοπθρστυωώχύζ",
    "armenian": "աբցդեֆգհիջկլմնօպքրստովւխյզ",
    "georgian": "აბცდეფგჰიჯკლმნოპყრსტუვწხჟზ",
}


# Capitals of Georgian are in no typeface here, and few texts use them.
_CAPITALS = {script: letters if script == "georgian" else letters.upper() for script, letters in _LETTERS.items()}
TABLES = {script: str.maketrans(_LATIN + _LATIN.upper(), _LETTERS[script] + _CAPITALS[script]) for script in _LETTERS}
_FOREIGN = frozenset("".join((*_LETTERS.values(), *_CAPITALS.values())))


def in_some_script(rng: np.random.Generator, style: Style, rows: list[Line]) -> tuple[Style, list[Line]]:
    """The receipt as it is, or in a few cases in another script and in typefaces that have it."""
    if not chance(rng, SHARE):
        return style, rows
    table = TABLES[pick(rng, tuple(TABLES))]
    written = [
        replace(row, cells=tuple(replace(cell, text=cell.text.translate(table)) for cell in row.cells)) for row in rows
    ]
    regular, bold, headline = (_face(face) for face in (style.regular, style.bold, style.headline))
    return replace(style, regular=regular, bold=bold, headline=headline), written


def _face(face: str) -> str:
    return face if face.startswith("DejaVu") else "DejaVuSans-Bold.ttf" if "Bol" in face else "DejaVuSans.ttf"


def language_of(text: str) -> str:
    """The code for an annotation: English, or undetermined (BCP 47) for letters of another script.

    >>> language_of("Tea 4.20"), language_of("τεα 4.20")
    ('en', 'und')
    """
    return "en" if _FOREIGN.isdisjoint(text) else "und"
