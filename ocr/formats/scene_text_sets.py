"""Datasets of scene text in JSON: LSVT and ArT, ReCTS, HierText.

{"gt_0": [{"transcription": "text", "points": [[x, y], ...], "illegibility": false}]}
{"lines": [{"points": [x1, y1, ..., x4, y4], "transcription": "text", "ignore": 0}]}
{"annotations": [{"image_id": "a", "paragraphs": [{"lines": [{"words": [{"vertices": [[x, y], ...]}]}]}]}]}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ocr.formats.lines import to_pairs
from ocr.formats.page_builder import PageBuilder
from ocr.formats.values import expect, is_true, numbers, text_or_none

_PARTS = {"paragraphs": "lines", "lines": "words", "words": None}


def sniff_lsvt(root: Any) -> bool:
    """Whether a JSON value looks like LSVT or ArT: lists of words with points by the stem of the image."""
    if not isinstance(root, dict) or not root or not all(isinstance(page, list) for page in root.values()):
        return False
    word = next((page[0] for page in root.values() if page), None)
    # A page of ReCTS has lists of lines and characters.
    return isinstance(word, dict) and "points" in word and not root.keys() <= {"lines", "chars"}


def read_lsvt(pages: PageBuilder) -> None:
    """Pages by image; the JSON names images without their extension."""
    for stem, entries in expect(pages.root, dict, pages.where, "the file").items():
        with pages.page(f"{pages.where}: {stem}") as page:
            page.of_stem(stem)
            for entry in expect(entries, list, page.place, "the page"):
                spot = page.next_place
                points = expect(expect(entry, dict, spot, "the word").get("points"), list, spot, '"points"')
                text, language = (text_or_none(entry.get(field)) for field in ("transcription", "language"))
                page.word(points, text, is_true(entry.get("illegibility")), language)


def sniff_rects(root: Any) -> bool:
    """Whether a JSON value looks like a page of ReCTS."""
    return isinstance(root, dict) and "lines" in root and root.keys() <= {"lines", "chars"}


def read_rects(pages: PageBuilder) -> None:
    """The lines of a page; the boxes of single characters are not read."""
    with pages.page() as page:
        page.of_stem(pages.path.stem)
        root = expect(pages.root, dict, pages.where, "the file")
        for line in expect(root.get("lines"), list, pages.where, '"lines"'):
            spot = page.next_place
            points = expect(expect(line, dict, spot, "the line").get("points"), list, spot, '"points"')
            text = text_or_none(line.get("transcription"))
            page.word(to_pairs(numbers(points, spot, '"points"')), text, is_true(line.get("ignore")))


def sniff_hiertext(root: Any) -> bool:
    """Whether a JSON value looks like HierText."""
    pages = root.get("annotations") if isinstance(root, dict) else None
    return isinstance(pages, list) and bool(pages) and isinstance(pages[0], dict) and "paragraphs" in pages[0]


def read_hiertext(pages: PageBuilder) -> None:
    """Pages by image. A line without words, or a paragraph without lines, is text that was not taken apart: ignored."""
    root = expect(pages.root, dict, pages.where, "the file")
    for number, entry in enumerate(expect(root.get("annotations"), list, pages.where, '"annotations"')):
        with pages.page(f"{pages.where}: annotations[{number}]") as page:
            image = expect(entry, dict, page.place, "the page").get("image_id")
            page.of_stem(expect(image, str, page.place, '"image_id"'))
            page.measured(entry.get("image_width"), entry.get("image_height"))
            for points, text, ignore in _regions(entry, "paragraphs", page.place):
                page.word(points, text, ignore)


def _regions(parent: dict[str, Any], field: str, place: str) -> Iterator[tuple[list[Any], str | None, bool]]:
    """Outline, text and ignore flag of the smallest parts below a page, a paragraph or a line."""
    finer = _PARTS[field]
    for number, part in enumerate(expect(parent.get(field) or [], list, place, f'"{field}"')):
        spot = f"{place}: {field}[{number}]"
        if finer and expect(part, dict, spot, "the part").get(finer):
            yield from _regions(part, finer, spot)
        else:
            outline = expect(expect(part, dict, spot, "the part").get("vertices"), list, spot, '"vertices"')
            yield outline, text_or_none(part.get("text")), finer is not None or part.get("legible") is False
