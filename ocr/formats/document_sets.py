"""Datasets of documents, a page's words in JSON: FUNSD and CORD with a file per image, WildReceipt with a line each.

{"form": [{"text": ..., "words": [{"box": [left, top, right, bottom], "text": ...}]}]}
{"valid_line": [{"words": [{"quad": {"x1": ..., "y4": ...}, "text": ...}]}]}
{"file_name": ..., "height": ..., "width": ..., "annotations": [{"box": [8 numbers]}]}
"""

from __future__ import annotations

import re
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.lines import numbered_lines, to_pairs
from ocr.formats.page_builder import PageBuilder, parse_json
from ocr.formats.values import box_corners, expect, numbers, text_or_none

_SIDES = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")
_WILDRECEIPT = re.compile(r'\ufeff?\s*\{\s*"(?:file_name|height|width)"\s*:')
WILDRECEIPT_IGNORED = 0


def sniff_funsd(root: Any) -> bool:
    """Whether a JSON value looks like a form of FUNSD."""
    return isinstance(root, dict) and isinstance(root.get("form"), list)


def read_funsd(pages: PageBuilder) -> None:
    """The words of all entities of a form."""
    with pages.page() as page:
        page.of_stem(pages.path.stem, ".png")
        for number, entity in enumerate(
            expect(expect(pages.root, dict, pages.where, "the file").get("form"), list, pages.where, '"form"')
        ):
            place = f"{pages.where}: form[{number}]"
            listed = expect(expect(entity, dict, place, "the entity").get("words"), list, place, '"words"')
            for at, word in enumerate(listed):
                spot = f"{place}.words[{at}]"
                found = expect(expect(word, dict, spot, "the word").get("box"), list, spot, '"box"')
                box = numbers(found, spot, '"box"')
                if len(box) != 4:
                    raise AnnotationError(
                        f'{spot}: "box" has {len(box)} numbers, expected left, top, right, bottom. Correct it',
                        setting="box",
                        value=box,
                    )
                text = text_or_none(word.get("text"))
                # The forms leave illegible text empty.
                page.word(box_corners(*box), text or None, text == "")


def sniff_cord(root: Any) -> bool:
    """Whether a JSON value looks like a receipt of CORD."""
    return isinstance(root, dict) and "valid_line" in root


def read_cord(pages: PageBuilder) -> None:
    """The words of a receipt's lines, and what is to be ignored (`dontcare`)."""
    where = pages.where
    with pages.page() as page:
        page.of_stem(pages.path.stem, ".png")
        root = expect(pages.root, dict, where, "the file")
        for number, line in enumerate(expect(root.get("valid_line"), list, where, '"valid_line"')):
            place = f"{where}: valid_line[{number}]"
            words = expect(expect(line, dict, place, "the line").get("words"), list, place, '"words"')
            for at, word in enumerate(words):
                spot = f"{place}.words[{at}]"
                corners = _corners(expect(word, dict, spot, "the word").get("quad"), spot)
                page.word(corners, text_or_none(word.get("text")))
        for number, group in enumerate(expect(root.get("dontcare", []), list, where, '"dontcare"')):
            for quad in group if isinstance(group, list) else [group]:
                page.word(_corners(quad, f"{where}: dontcare[{number}]"), ignore=True)
        meta = root.get("meta")
        size = meta.get("image_size") if isinstance(meta, dict) else None
        if isinstance(size, dict):
            page.measured(size.get("width"), size.get("height"))


def _corners(quad: Any, place: str) -> list[list[float]]:
    quad = expect(quad, dict, place, '"quad"')
    return to_pairs(numbers([quad.get(side) for side in _SIDES], place, '"quad"'))


def sniff_wildreceipt(text: str) -> bool:
    """Whether a text begins with a line of WildReceipt."""
    return _WILDRECEIPT.match(text) is not None


def read_wildreceipt(pages: PageBuilder) -> None:
    """A page per line; words of the class 0, which is named Ignore, are ignored."""
    for number, line in numbered_lines(pages.text):
        place = f"{pages.where}, line {number}"
        with pages.page(place) as page:
            entry = expect(parse_json(line, place), dict, place, "the line")
            page.of_path(expect(entry.get("file_name"), str, place, '"file_name"'))
            page.place = place
            page.measured(entry.get("width"), entry.get("height"))
            for word in expect(entry.get("annotations"), list, place, '"annotations"'):
                spot = page.next_place
                if isinstance(word, dict) and "box" not in word and "segmentation" in word:
                    raise AnnotationError(
                        f"{spot}: this looks like the JSON lines of MMOCR 0.x, which are not read. Convert them to "
                        "MMOCR 1.x",
                        value=word["segmentation"],
                    )
                box = expect(expect(word, dict, spot, "the word").get("box"), list, spot, '"box"')
                ignore = word.get("label") == WILDRECEIPT_IGNORED and word.get("label") is not False
                page.word(to_pairs(numbers(box, spot, '"box"')), text_or_none(word.get("text")), ignore)
