"""LSVT and ArT: one JSON, `{"gt_0": [{"transcription": "text", "points": [[x, y], ...], "illegibility": false}]}`."""

from __future__ import annotations

from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.fields import expect, is_true, text_or_none
from ocr.formats.lines import collected, raise_faults

IGNORED = "###"


def is_lsvt(root: Any) -> bool:
    """Whether a JSON value looks like that of LSVT or ArT: lists of words with points by the stem of the image."""
    if not isinstance(root, dict) or not root or not all(isinstance(page, list) for page in root.values()):
        return False
    word = next((page[0] for page in root.values() if page), None)
    # A page of ReCTS has lists of lines and characters.
    return isinstance(word, dict) and "points" in word and not root.keys() <= {"lines", "chars"}


def parse_lsvt(document: Document) -> dict[str, Page]:
    """Pages by image; the JSON names images without their extension."""
    where = document.where
    pages: dict[str, Page] = {}
    faults: list[AnnotationError] = []
    for stem, entries in expect(document.root, dict, where, "the file").items():
        with collected(faults):
            name = document.names.of_stem(stem, where)
            if name in pages:
                raise AnnotationError(f"{where}: {stem}: {name} is annotated twice: remove one of them", value=name)
            entries = expect(entries, list, f"{where}: {stem}", "the page")
            pages[name] = Page(tuple([_parse_word(entry, at, f"{where}: {stem}") for at, entry in enumerate(entries)]))
    raise_faults(faults)
    return pages


def _parse_word(entry: Any, at: int, page: str) -> Word:
    key = f"{at + 1:04d}"
    place = f"{page}: word {key}"
    expect(entry, dict, place, "the word")
    points = expect(entry.get("points"), list, place, '"points"')
    text = text_or_none(entry.get("transcription"))
    ignore = is_true(entry.get("illegibility")) or text == IGNORED
    return Word(key, points, text, ignore, text_or_none(entry.get("language")))
