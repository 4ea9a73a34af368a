"""WildReceipt: JSON lines, `{"file_name": ..., "height": ..., "width": ..., "annotations": [{"box": [8 numbers]}]}`."""

from __future__ import annotations

import re
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document, parse_json
from ocr.formats.fields import expect, text_or_none
from ocr.formats.lines import collected, numbered_lines, raise_faults, to_pairs
from ocr.formats.native import page_size
from ocr.formats.shapes import numbers

_START = re.compile(r'\ufeff?\s*\{\s*"(?:file_name|height|width)"\s*:')
IGNORED_LABEL = 0


def is_wildreceipt(text: str) -> bool:
    """Whether a text begins with a line of WildReceipt."""
    return _START.match(text) is not None


def parse_wildreceipt(document: Document) -> dict[str, Page]:
    """Pages by image; words of the class 0, which is named Ignore, are ignored."""
    pages: dict[str, Page] = {}
    faults: list[AnnotationError] = []
    for number, line in numbered_lines(document.text):
        place = f"{document.where}, line {number}"
        with collected(faults):
            page = expect(parse_json(line, place), dict, place, "the line")
            name = document.names.of_path(expect(page.get("file_name"), str, place, '"file_name"'))
            if name in pages:
                raise AnnotationError(f"{place}: {name} is labelled twice: remove one of the lines", value=name)
            entries = expect(page.get("annotations"), list, place, '"annotations"')
            words = tuple([_parse_entry(entry, f"{at:04d}", place) for at, entry in enumerate(entries, start=1)])
            pages[name] = Page(words, page_size(page.get("width"), page.get("height"), place))
    raise_faults(faults)
    return pages


def _parse_entry(entry: Any, key: str, line: str) -> Word:
    place = f"{line}: word {key}"
    if isinstance(entry, dict) and "box" not in entry and "segmentation" in entry:
        raise AnnotationError(
            f"{place}: this looks like the JSON lines of MMOCR 0.x, which are not read: convert them to MMOCR 1.x",
            value=entry["segmentation"],
        )
    box = expect(expect(entry, dict, place, "the word").get("box"), list, place, '"box"')
    ignore = entry.get("label") == IGNORED_LABEL and entry.get("label") is not False
    return Word(key, to_pairs(numbers(box, place, '"box"')), text_or_none(entry.get("text")), ignore)
