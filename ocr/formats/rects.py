"""ReCTS: a JSON per image, `{"lines": [{"points": [x1, y1, ..., x4, y4], "transcription": "text", "ignore": 0}]}`."""

from __future__ import annotations

from typing import Any

from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.fields import expect, is_true, text_or_none
from ocr.formats.lines import to_pairs
from ocr.formats.shapes import numbers

IGNORED = "###"


def is_rects(root: Any) -> bool:
    """Whether a JSON value looks like a page of ReCTS."""
    return isinstance(root, dict) and "lines" in root and root.keys() <= {"lines", "chars"}


def parse_rects(document: Document) -> dict[str, Page]:
    """The page of a file: its lines; the boxes of single characters are not read."""
    where = document.where
    lines = expect(expect(document.root, dict, where, "the file").get("lines"), list, where, '"lines"')
    words = tuple([_parse_line(line, f"{at:04d}", where) for at, line in enumerate(lines, start=1)])
    return {document.names.of_stem(document.path.stem, where): Page(words)}


def _parse_line(line: Any, key: str, where: str) -> Word:
    place = f"{where}: word {key}"
    points = expect(expect(line, dict, place, "the line").get("points"), list, place, '"points"')
    text = text_or_none(line.get("transcription"))
    return Word(key, to_pairs(numbers(points, place, '"points"')), text, is_true(line.get("ignore")) or text == IGNORED)
