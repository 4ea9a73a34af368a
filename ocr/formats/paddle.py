"""PaddleOCR label text: one line per image, with its path, a tab and a JSON list of words."""

from __future__ import annotations

import json
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.lines import numbered_lines, shorten, unreadable
from ocr.formats.names import ImageNames

IGNORED = ("###", "*")
_FORM = 'path<TAB>[{"transcription": "text", "points": [[x, y], ...]}]'


def parse_paddle(text: str, where: str, names: ImageNames, notes: list[str]) -> dict[str, Page]:
    """Pages of a label file, by image; a line that is repeated byte by byte is skipped, and added to `notes`."""
    pages: dict[str, Page] = {}
    first: dict[str, tuple[int, str]] = {}
    faults = []
    for number, line in numbered_lines(text):
        try:
            name, entries, path = _parse_line(line, number, where, names)
            if name not in first:
                first[name] = number, line
                place = f"{where}, line {number}: {name}"
                pages[name] = Page(tuple([_parse_entry(entry, at, place) for at, entry in enumerate(entries, start=1)]))
            elif first[name][1] == line:
                notes.append(f"{where}, line {number}: skipped, the same as line {first[name][0]} ({name})")
            else:
                raise AnnotationError(
                    f"{where}, line {number}: {name} is labelled twice ({shorten(path)}), first in line "
                    f"{first[name][0]}: remove one line, or set image_path (--image-path) to the folder that the paths "
                    "start from"
                )
        except AnnotationError as error:
            faults.append(str(error))
    if faults:
        raise AnnotationError("\n".join(faults))
    return pages


def _parse_line(line: str, number: int, where: str, names: ImageNames) -> tuple[str, list[Any], str]:
    """Page name, words and path as written."""
    path, tab, label = line.partition("\t")
    try:
        entries = json.loads(label) if tab else None
    except (ValueError, RecursionError) as error:
        raise unreadable(where, number, line, "PaddleOCR", _FORM) from error
    if not isinstance(entries, list):
        raise unreadable(where, number, line, "PaddleOCR", _FORM)
    return names.of_path(path.strip()), entries, path


def _parse_entry(entry: Any, index: int, place: str) -> Word:
    key = f"{index:04d}"
    if not isinstance(entry, dict):
        raise AnnotationError(f"{place}: word {key} is {shorten(entry)}, not an object: correct the label file")
    transcription = entry.get("transcription")
    ignore = bool(entry.get("difficult")) or transcription in IGNORED
    return Word(key, entry.get("points"), transcription, ignore)  # type: ignore[arg-type]
