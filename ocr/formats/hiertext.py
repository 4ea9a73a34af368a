"""HierText: one JSON with `annotations`, per image its paragraphs, their lines and the words of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.fields import expect, text_or_none
from ocr.formats.lines import collected, raise_faults
from ocr.formats.native import page_size

_PARTS = {"paragraphs": "lines", "lines": "words", "words": None}


def is_hiertext(root: Any) -> bool:
    """Whether a JSON value looks like HierText."""
    pages = root.get("annotations") if isinstance(root, dict) else None
    return isinstance(pages, list) and bool(pages) and isinstance(pages[0], dict) and "paragraphs" in pages[0]


def parse_hiertext(document: Document) -> dict[str, Page]:
    """Pages by image. A line without words, or a paragraph without lines, is text that was not taken apart: ignored."""
    where = document.where
    pages: dict[str, Page] = {}
    faults: list[AnnotationError] = []
    root = expect(document.root, dict, where, "the file")
    for number, entry in enumerate(expect(root.get("annotations"), list, where, '"annotations"')):
        place = f"{where}: annotations[{number}]"
        with collected(faults):
            image = expect(expect(entry, dict, place, "the page").get("image_id"), str, place, '"image_id"')
            name = document.names.of_stem(image, where)
            if name in pages:
                raise AnnotationError(f"{place}: {name} occurs twice: remove one of them", value=name)
            regions = enumerate(_regions(entry, "paragraphs", f"{where}: {image}"), start=1)
            words = tuple([Word(f"{at:04d}", points, text, ignore) for at, (points, text, ignore) in regions])
            pages[name] = Page(words, page_size(entry.get("image_width"), entry.get("image_height"), place))
    raise_faults(faults)
    return pages


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
