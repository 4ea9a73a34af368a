"""PaddleOCR label text: one line per image, with its path, a tab and a JSON list of words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.export import Export
from ocr.formats.lines import collected, numbered_lines, raise_faults, shorten, unreadable
from ocr.formats.names import ImageNames
from ocr.formats.native import to_json

IGNORED = ("###", "*")
_FORM = 'path<TAB>[{"transcription": "text", "points": [[x, y], ...]}]'


def is_paddle(text: str) -> bool:
    """Whether a text begins with a line of a label file."""
    first = text.lstrip().split("\n", 1)[0]
    return "\t[" in first and not first.startswith("{")


def parse_paddle(document: Document) -> dict[str, Page]:
    """Pages of a label file, by image; a line that is repeated byte by byte is skipped, and added to the notes."""
    where, names = document.where, document.names
    pages: dict[str, Page] = {}
    first: dict[str, tuple[int, str]] = {}
    faults: list[AnnotationError] = []
    for number, line in numbered_lines(document.text):
        with collected(faults):
            name, entries, path = _parse_line(line, number, where, names)
            if name not in first:
                first[name] = number, line
                place = f"{where}, line {number}: {name}"
                pages[name] = Page(tuple([_parse_entry(entry, at, place) for at, entry in enumerate(entries, start=1)]))
            elif first[name][1] == line:
                document.notes.append(f"{where}, line {number}: skipped, the same as line {first[name][0]} ({name})")
            else:
                raise AnnotationError(
                    f"{where}, line {number}: {name} is labelled twice ({shorten(path)}), first in line "
                    f"{first[name][0]}: remove one line, or set image_path (--image-path) to the folder that the paths "
                    "start from",
                    value=name,
                )
    raise_faults(faults)
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
        raise AnnotationError(
            f"{place}: word {key} is {shorten(entry)}, not an object: correct the label file", value=entry
        )
    transcription = entry.get("transcription")
    ignore = bool(entry.get("difficult")) or transcription in IGNORED
    return Word(key, entry.get("points"), transcription, ignore)  # type: ignore[arg-type]


def write_paddle(export: Export) -> Iterator[str]:
    """A line per image; a word without a text is written with an empty one, as PPOCRLabel does before it is read."""
    for name, page in export.pages.items():
        if set(name) & {"\t", "\n", "\r"}:
            raise AnnotationError(f"{name!r}: a label file cannot hold this name: rename the image", value=name)
        entries = [
            {
                "transcription": "" if word.text is None else word.text,
                "points": word.points,
                "difficult": word.ignore,
                **({} if score is None else {"score": score}),
            }
            for word, score in export.words(name, page)
        ]
        unmarked = sum(word.text in IGNORED and not word.ignore for word in page.words)
        if unmarked:
            export.notes.append(f"{name}: {unmarked} words are written * or ###, which PaddleOCR ignores")
        yield f"{name}\t{to_json(entries)}\n"
