"""FUNSD: a JSON per form, `{"form": [{"text": ..., "words": [{"box": [left, top, right, bottom], "text": ...}]}]}`."""

from __future__ import annotations

from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.fields import expect, text_or_none
from ocr.formats.shapes import box_corners, numbers


def is_funsd(root: Any) -> bool:
    """Whether a JSON value looks like a form of FUNSD."""
    return isinstance(root, dict) and isinstance(root.get("form"), list)


def parse_funsd(document: Document) -> dict[str, Page]:
    """The page of a file: the words of all its entities."""
    where = document.where
    entities = expect(expect(document.root, dict, where, "the file").get("form"), list, where, '"form"')
    words: list[Word] = []
    for number, entity in enumerate(entities):
        place = f"{where}: form[{number}]"
        listed = expect(expect(entity, dict, place, "the entity").get("words"), list, place, '"words"')
        for at, word in enumerate(listed):
            words.append(_parse_word(word, f"{len(words) + 1:04d}", f"{place}.words[{at}]"))
    return {document.names.of_stem(document.path.stem, where, ".png"): Page(tuple(words))}


def _parse_word(word: Any, key: str, place: str) -> Word:
    box = numbers(expect(expect(word, dict, place, "the word").get("box"), list, place, '"box"'), place, '"box"')
    if len(box) != 4:
        raise AnnotationError(
            f'{place}: "box" has {len(box)} numbers, not left, top, right, bottom: correct it', setting="box", value=box
        )
    text = text_or_none(word.get("text"))
    # The forms leave the text of what nobody could read empty.
    return Word(key, box_corners(*box), text or None, text == "")
