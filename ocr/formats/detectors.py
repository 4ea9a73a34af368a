"""The labels of other detectors: PaddleOCR's text, one line per image; MMOCR's and docTR's JSON.

path<TAB>[{"transcription": "text", "points": [[x, y], ...]}]
{"data_list": [{"img_path": ..., "instances": [{"polygon": [x1, y1, ...], "bbox": [...], "ignore": false}]}]}
{"a.png": {"img_dimensions": [...], "img_hash": "...", "polygons": [[[x, y], ...], ...]}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page
from ocr.formats.export import Export, json_list
from ocr.formats.lines import numbered_lines, shorten, to_pairs, unreadable
from ocr.formats.native import to_json
from ocr.formats.page_builder import PageBuilder
from ocr.formats.values import bounds, box_corners, expect, is_true, numbers, text_or_none

PADDLE_IGNORED = ("###", "*")
_FORM = 'path<TAB>[{"transcription": "text", "points": [[x, y], ...]}]'


def sniff_paddle(text: str) -> bool:
    """Whether a text begins with a line of a label file."""
    first = text.lstrip().split("\n", 1)[0]
    return "\t[" in first and not first.startswith("{")


def read_paddle(pages: PageBuilder) -> None:
    """A page per line; a line that is repeated byte by byte is skipped, and added to the notes."""
    first: dict[str, int] = {}
    for number, line in numbered_lines(pages.text):
        if first.setdefault(line, number) != number:
            name = pages.names.of_path(line.partition("\t")[0].strip())
            pages.notes.append(f"{pages.where}, line {number}: skipped, the same as line {first[line]} ({name})")
            continue
        with pages.page(f"{pages.where}, line {number}") as page:
            path, tab, label = line.partition("\t")
            try:
                entries = json.loads(label) if tab else None
            except (ValueError, RecursionError) as error:
                raise unreadable(pages.where, number, line, "PaddleOCR", _FORM) from error
            if not isinstance(entries, list):
                raise unreadable(pages.where, number, line, "PaddleOCR", _FORM)
            place = page.place
            page.of_path(path.strip())
            page.place = f"{place}: {page.name}"
            for entry in entries:
                if not isinstance(entry, dict):
                    raise AnnotationError(
                        f"{page.next_place} is {shorten(entry)}, expected an object. Correct the label file",
                        value=entry,
                    )
                text = entry.get("transcription")
                page.word(entry.get("points"), text, bool(entry.get("difficult")) or text in PADDLE_IGNORED)  # type: ignore[arg-type]


def write_paddle(export: Export) -> Iterator[str]:
    """A line per image; a word without a text is written with an empty one, as PPOCRLabel does before it is read."""
    for name, page in export.pages.items():
        if set(name) & {"\t", "\n", "\r"}:
            raise AnnotationError(
                f"{name!r}: a tab or line break in the name of an image. Rename the image", value=name
            )
        entries = [
            {
                "transcription": "" if word.text is None else word.text,
                "points": word.points,
                "difficult": word.ignore,
                **({} if score is None else {"score": score}),
            }
            for word, score in export.words(name, page)
        ]
        unmarked = sum(word.text in PADDLE_IGNORED and not word.ignore for word in page.words)
        if unmarked:
            export.notes.append(f"{name}: {unmarked} words are written * or ###, which PaddleOCR ignores")
        yield f"{name}\t{to_json(entries)}\n"


def sniff_mmocr(root: Any) -> bool:
    """Whether a JSON value looks like MMOCR 1.x."""
    return isinstance(root, dict) and "data_list" in root


def read_mmocr(pages: PageBuilder) -> None:
    """Pages by image, of the polygons or boxes of their instances."""
    where = pages.where
    entries = expect(expect(pages.root, dict, where, "the file").get("data_list"), list, where, '"data_list"')
    for number, entry in enumerate(entries):
        with pages.page(f"{where}: data_list[{number}]") as page:
            path = expect(entry, dict, page.place, "the entry").get("img_path")
            page.of_path(expect(path, str, page.place, '"img_path"'))
            page.measured(entry.get("width"), entry.get("height"))
            for instance in expect(entry.get("instances", []), list, page.place, '"instances"'):
                outline = _instance(expect(instance, dict, page.next_place, "the instance"), page.next_place)
                page.word(outline, text_or_none(instance.get("text")), is_true(instance.get("ignore")))


def _instance(instance: dict[str, Any], place: str) -> list[list[float]]:
    if instance.get("polygon"):
        return to_pairs(numbers(expect(instance["polygon"], list, place, '"polygon"'), place, '"polygon"'))
    box = numbers(expect(instance.get("bbox"), list, place, 'no "polygon", and "bbox"'), place, '"bbox"')
    if len(box) != 4:
        raise AnnotationError(
            f'{place}: "bbox" has {len(box)} numbers, expected left, top, right, bottom. Correct it',
            setting="bbox",
            value=box,
        )
    return box_corners(*box)


def write_mmocr(export: Export) -> Iterator[str]:
    """For `TextDetDataset`, with the texts, which MMOCR's spotters read from the same file."""
    kind = {"dataset_type": "TextDetDataset", "task_name": "textdet", "category": [{"id": 0, "name": "text"}]}
    yield f'{{"metainfo": {to_json(kind)},'
    entries = (_page_entry(name, page, export) for name, page in export.pages.items())
    yield from json_list('\n"data_list": [', entries, "]}\n")


def _page_entry(name: str, page: Page, export: Export) -> dict[str, Any]:
    width, height = export.size(name, page)
    instances = [
        {
            "polygon": [side for point in word.points for side in point],
            "bbox": list(bounds(word.points)),
            "bbox_label": 0,
            "ignore": word.ignore,
            **({} if word.text is None else {"text": word.text}),
            **({} if score is None else {"score": score}),
        }
        for word, score in export.words(name, page)
    ]
    return {"img_path": name, "height": height, "width": width, "instances": instances}


def sniff_doctr(root: Any) -> bool:
    """Whether a JSON value looks like docTR's labels of a detector."""
    return isinstance(root, dict) and bool(root) and _has_polygons(next(iter(root.values())))


def _has_polygons(page: Any) -> bool:
    return isinstance(page, dict) and "polygons" in page


def doctr_categories(pages: PageBuilder) -> Iterator[str]:
    """The classes, if polygons are given by class."""
    root = pages.root
    for page in root.values() if isinstance(root, dict) else ():
        if _has_polygons(page) and isinstance(page["polygons"], dict):
            yield from page["polygons"]


def read_doctr(pages: PageBuilder) -> None:
    """Pages by image. Their size is not read: docTR does not say which of the two numbers is the width."""
    for written, entry in expect(pages.root, dict, pages.where, "the file").items():
        with pages.page(f"{pages.where}: {written}") as page:
            page.of_path(written)
            polygons = expect(entry, dict, page.place, "the page").get("polygons")
            for category, outlines in (polygons if isinstance(polygons, dict) else {None: polygons}).items():
                for points in expect(outlines, list, page.place, '"polygons"'):
                    # Asked for each, so that those left out are counted.
                    if pages.categories.is_text(category):
                        page.word(expect(points, list, page.next_place, "the polygon"))
