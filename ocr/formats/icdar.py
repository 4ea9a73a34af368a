"""ICDAR text files: one file per image, one line per word; 2013 writes boxes, 2015 four corners."""

from __future__ import annotations

import re
from dataclasses import replace

from ocr.errors import AnnotationError
from ocr.formats.annotation import Word
from ocr.formats.lines import NUMBER, numbered_lines, shorten, to_number, to_pairs, unreadable

IGNORED = "###"
# The training set of 2013 separates by spaces, its test set by commas and spaces.
BOX = re.compile(r"[,\s]+".join([f"({NUMBER})"] * 4) + r"(?:[,\s]+(.*))?")
QUAD = re.compile(r"\s*,\s*".join([f"({NUMBER})"] * 8) + r"\s*(?:,(.*))?")

# ICDAR-2017 and 2019 MLT write the script between the corners and the text.
SCRIPT = re.compile(r"(Arabic|Bangla|Chinese|Hindi|Japanese|Korean|Latin|Mixed|None|Symbols),(.*)")


def parse_icdar2013(text: str, where: str) -> tuple[Word, ...]:
    """Words of `left, top, right, bottom, "text"`.

    >>> parse_icdar2013('38, 43, 920, 215, "Tiredness"', "gt_img_1.txt")[0].points
    [[38, 43], [920, 43], [920, 215], [38, 215]]
    """
    words = []
    for number, line in numbered_lines(text):
        match = BOX.fullmatch(line)
        if match is None:
            raise unreadable(where, number, line, "ICDAR-2013", 'left, top, right, bottom, "text"')
        if QUAD.fullmatch(line):
            raise AnnotationError(
                f"{where}, line {number}: {shorten(line)} has eight numbers, and ICDAR-2013 has four: "
                "set annotation_format (--format) to icdar2015"
            )
        left, top, right, bottom = map(to_number, match.groups()[:4])
        transcription = _unquote(match[5])
        corners: list[list[float]] = [[left, top], [right, top], [right, bottom], [left, bottom]]
        words.append(Word(f"{number:04d}", corners, transcription, transcription == IGNORED))
    return tuple(words)


def parse_icdar2015(text: str, where: str) -> tuple[Word, ...]:
    """Words of `x1,y1,x2,y2,x3,y3,x4,y4,text`, whose text may contain commas, or of MLT's `...,script,text`.

    >>> parse_icdar2015("1,2,9,2,9,5,1,5,Tel, Fax", "gt_img_1.txt")[0].text
    'Tel, Fax'
    """
    words = []
    for number, line in numbered_lines(text):
        match = QUAD.fullmatch(line)
        if match is None:
            raise unreadable(where, number, line, "ICDAR-2015", "x1,y1,x2,y2,x3,y3,x4,y4,text")
        transcription = None if match[9] is None else match[9].strip()
        corners = to_pairs(list(map(to_number, match.groups()[:8])))
        words.append(Word(f"{number:04d}", corners, transcription, transcription == IGNORED))
    # One text may begin with such a word and a comma, but not every text of a page.
    scripts = [SCRIPT.fullmatch(word.text or "") for word in words]
    if not all(scripts):
        return tuple(words)
    return tuple(
        replace(word, text=script[2].strip(), ignore=script[2].strip() == IGNORED, language=script[1])
        for word, script in zip(words, scripts, strict=True)
        if script
    )


def _unquote(field: str | None) -> str | None:
    """Only the outer pair of quotes belongs to the format; those inside are text."""
    if field is not None and len(field) >= 2 and field[0] == field[-1] == '"':
        return field[1:-1]
    return field
