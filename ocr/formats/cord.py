"""CORD: a JSON per receipt, `{"valid_line": [{"words": [{"quad": {"x1": ..., "y4": ...}, "text": ...}]}]}`."""

from __future__ import annotations

from typing import Any

from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.fields import expect, text_or_none
from ocr.formats.lines import to_pairs
from ocr.formats.native import page_size
from ocr.formats.shapes import numbers

_SIDES = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")


def is_cord(root: Any) -> bool:
    """Whether a JSON value looks like a receipt of CORD."""
    return isinstance(root, dict) and "valid_line" in root


def parse_cord(document: Document) -> dict[str, Page]:
    """The page of a file: the words of its lines, and what is to be ignored (`dontcare`)."""
    where = document.where
    root = expect(document.root, dict, where, "the file")
    words: list[Word] = []
    for number, line in enumerate(expect(root.get("valid_line"), list, where, '"valid_line"')):
        place = f"{where}: valid_line[{number}]"
        for at, word in enumerate(expect(expect(line, dict, place, "the line").get("words"), list, place, '"words"')):
            spot = f"{place}.words[{at}]"
            points = _corners(expect(word, dict, spot, "the word").get("quad"), spot)
            words.append(Word(f"{len(words) + 1:04d}", points, text_or_none(word.get("text"))))
    for number, group in enumerate(expect(root.get("dontcare", []), list, where, '"dontcare"')):
        for quad in group if isinstance(group, list) else [group]:
            points = _corners(quad, f"{where}: dontcare[{number}]")
            words.append(Word(f"{len(words) + 1:04d}", points, ignore=True))
    return {document.names.of_stem(document.path.stem, where, ".png"): Page(tuple(words), _size(root, where))}


def _corners(quad: Any, place: str) -> list[list[float]]:
    quad = expect(quad, dict, place, '"quad"')
    return to_pairs(numbers([quad.get(side) for side in _SIDES], place, '"quad"'))


def _size(root: dict[str, Any], where: str) -> tuple[int, int] | None:
    meta = root.get("meta")
    size = meta.get("image_size") if isinstance(meta, dict) else None
    return page_size(size.get("width"), size.get("height"), where) if isinstance(size, dict) else None
