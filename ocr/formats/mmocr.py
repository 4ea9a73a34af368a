"""MMOCR 1.x: one JSON with `data_list`, per image its path and the polygons or boxes of its instances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.export import Export, json_list
from ocr.formats.fields import expect, is_true, text_or_none
from ocr.formats.lines import collected, raise_faults, to_pairs
from ocr.formats.native import page_size, to_json
from ocr.formats.shapes import bounds, box_corners, numbers


def is_mmocr(root: Any) -> bool:
    """Whether a JSON value looks like MMOCR's."""
    return isinstance(root, dict) and "data_list" in root


def parse_mmocr(document: Document) -> dict[str, Page]:
    """Pages by image."""
    where = document.where
    pages: dict[str, Page] = {}
    faults: list[AnnotationError] = []
    entries = expect(expect(document.root, dict, where, "the file").get("data_list"), list, where, '"data_list"')
    for number, entry in enumerate(entries):
        with collected(faults):
            place = f"{where}: data_list[{number}]"
            path = expect(expect(entry, dict, place, "the entry").get("img_path"), str, place, '"img_path"')
            name = document.names.of_path(path)
            if name in pages:
                raise AnnotationError(
                    f"{place}: {name} occurs twice: remove one, or set image_path (--image-path) to the folder that "
                    "the paths start from",
                    value=name,
                )
            instances = expect(entry.get("instances", []), list, f"{where}: {name}", '"instances"')
            words = [_parse_instance(item, at, f"{where}: {name}") for at, item in enumerate(instances, start=1)]
            pages[name] = Page(tuple(words), page_size(entry.get("width"), entry.get("height"), f"{where}: {name}"))
    raise_faults(faults)
    return pages


def _parse_instance(instance: Any, at: int, page: str) -> Word:
    key = f"{at:04d}"
    place = f"{page}: word {key}"
    expect(instance, dict, place, "the instance")
    if instance.get("polygon"):
        points = to_pairs(numbers(expect(instance["polygon"], list, place, '"polygon"'), place, '"polygon"'))
    else:
        box = numbers(expect(instance.get("bbox"), list, place, 'no "polygon", and "bbox"'), place, '"bbox"')
        if len(box) != 4:
            raise AnnotationError(
                f'{place}: "bbox" has {len(box)} numbers, not left, top, right, bottom: correct it',
                setting="bbox",
                value=box,
            )
        points = box_corners(*box)
    return Word(key, points, text_or_none(instance.get("text")), is_true(instance.get("ignore")))


def write_mmocr(export: Export) -> Iterator[str]:
    """For `TextDetDataset`, with the texts, which MMOCR's spotters read from the same file."""
    kind = {"dataset_type": "TextDetDataset", "task_name": "textdet", "category": [{"id": 0, "name": "text"}]}
    yield f'{{"metainfo": {to_json(kind)},'
    pages = (_page_entry(name, page, export) for name, page in export.pages.items())
    yield from json_list('\n"data_list": [', pages, "]}\n")


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
