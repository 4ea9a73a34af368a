"""VGG Image Annotator 1 and 2: one JSON, a project or its annotations, with shapes and free attributes per image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.categories import means_ignored
from ocr.formats.export import Export, attributes_of, upright_box
from ocr.formats.native import to_json
from ocr.formats.page_builder import NewPage, PageBuilder
from ocr.formats.values import TRANSCRIPTIONS, box_corners, expect, is_true, numbers, rounded, text_or_none

_CATEGORIES = ("label", "class", "category", "type")
_WITHOUT_AREA = ("point", "polyline", "line")
_BOX = ("x", "y", "width", "height")
_CHECKBOX = {"type": "checkbox", "description": "", "options": {"yes": ""}, "default_options": {}}


def sniff_via(root: Any) -> bool:
    """Whether a JSON value looks like a project of VIA, or the annotations that it exports."""
    pages = root.get("_via_img_metadata", root) if isinstance(root, dict) else None
    if not isinstance(pages, dict):
        return False
    first = next(iter(pages.values()), None)
    return pages is not root or (isinstance(first, dict) and {"filename", "regions"} <= first.keys())


def via_categories(pages: PageBuilder) -> Iterator[str]:
    """What the regions have as their label, class, category or type."""
    root = pages.root
    pages = root.get("_via_img_metadata", root) if isinstance(root, dict) else {}
    for page in pages.values() if isinstance(pages, dict) else ():
        regions = _listed(page.get("regions")) if isinstance(page, dict) else []
        for region in regions if isinstance(regions, list) else ():
            category = _category(region.get("region_attributes") if isinstance(region, dict) else None)
            if category is not None:
                yield category


def read_via(pages: PageBuilder) -> None:
    """Pages by image. VIA does not store the size of a page."""
    root, where = expect(pages.root, dict, pages.where, "the file"), pages.where
    for key, entry in expect(root.get("_via_img_metadata", root), dict, where, '"_via_img_metadata"').items():
        with pages.page(f"{where}: {key}") as page:
            written = expect(entry, dict, page.place, "the page").get("filename")
            page.of_path(expect(written, str, page.place, '"filename"'))
            regions = expect(_listed(entry.get("regions")), list, page.place, '"regions"')
            for at, region in enumerate(regions, start=1):
                _read_region(pages, page, region, at)


def _listed(regions: Any) -> Any:
    """VIA 1 numbers the regions: {"0": {...}, "1": {...}}."""
    return list(regions.values()) if isinstance(regions, dict) else regions or []


def _category(attributes: Any) -> str | None:
    if not isinstance(attributes, dict):
        return None
    return next((attributes[field] for field in _CATEGORIES if isinstance(attributes.get(field), str)), None)


def _read_region(pages: PageBuilder, page: NewPage, region: Any, at: int) -> None:
    place = f"{page.place}: region {at}"
    shape = expect(expect(region, dict, place, "the region").get("shape_attributes"), dict, place, '"shape_attributes"')
    attributes = region.get("region_attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    category = _category(attributes)
    if not pages.categories.is_text(category):
        return
    if shape.get("name") in _WITHOUT_AREA:
        pages.notes.append(f"{place}: skipped, a {shape['name']} has no area")
        return
    text = next((attributes[field] for field in TRANSCRIPTIONS if isinstance(attributes.get(field), str)), None)
    flags = [name for name, value in attributes.items() if is_true(value)]
    language, orientation = (text_or_none(attributes.get(field)) or None for field in ("language", "orientation"))
    ignore = any(map(means_ignored, [category, text, *flags]))
    page.word(_outline(shape, place), text or None, ignore, language, orientation, key=f"{at:04d}")


def _outline(shape: dict[str, Any], place: str) -> list[list[float]]:
    match shape.get("name"):
        case "polygon":
            xs, ys = (
                numbers(expect(shape.get(field), list, place, f'"{field}"'), place, f'"{field}"')
                for field in ("all_points_x", "all_points_y")
            )
            if len(xs) != len(ys):
                raise AnnotationError(
                    f"{place}: {len(xs)} x for {len(ys)} y, expected as many. Correct the region",
                    value=(len(xs), len(ys)),
                )
            points = [[x, y] for x, y in zip(xs, ys, strict=True)]
            # VIA 1 repeats the first point at the end.
            return points[:-1] if len(points) > 3 and points[0] == points[-1] else points
        case "rect":
            x, y, width, height = numbers([shape.get(side) for side in _BOX], place, "a side of the rectangle")
            return box_corners(x, y, *rounded((x + width, y + height)))
        case other:
            raise AnnotationError(
                f"{place}: the shape {other!r} cannot be read. Draw it as a polygon", setting="name", value=other
            )


def write_via(export: Export) -> Iterator[str]:
    """A project, which VIA opens with its attributes; VIA looks for images next to it, or in the image folder."""
    folder = "" if export.image_path is None else os.path.relpath(export.image_path, export.target.parent) + "/"
    settings = {
        "ui": {},
        "core": {"buffer_size": 18, "filepath": {}, "default_filepath": folder.replace(os.sep, "/")},
        "project": {"name": export.target.stem},
    }
    text = {"type": "text", "description": "", "default_value": ""}
    region = {
        **dict.fromkeys(("transcription", "language", "orientation", "score", "note"), text),
        "illegible": _CHECKBOX,
    }
    yield f'{{"_via_settings": {to_json(settings)},\n"_via_attributes": {to_json({"region": region, "file": {}})},\n'
    yield '"_via_data_format_version": "2.0.10",\n"_via_img_metadata": {'
    keys: list[str] = []
    for name, page in export.pages.items():
        entry = _page_entry(name, page, export)
        yield f"{',' if keys else ''}\n{to_json(name + str(entry['size']))}: {to_json(entry)}"
        keys.append(name + str(entry["size"]))
    yield f'}},\n"_via_image_id_list": {to_json(keys)}}}\n'


def _page_entry(name: str, page: Page, export: Export) -> dict[str, Any]:
    file = None if export.image_path is None else export.image_path / name
    # VIA names a page by its file name and the size of the file in bytes, -1 if it does not know that.
    size = file.stat().st_size if file is not None and file.is_file() else -1
    regions = [_region_entry(word, score) for word, score in export.words(name, page)]
    return {"filename": name, "size": size, "regions": regions, "file_attributes": {}}


def _region_entry(word: Word, score: float | None) -> dict[str, Any]:
    box = upright_box(word.points)
    if box is None:
        xs, ys = zip(*word.points, strict=True)
        shape: dict[str, Any] = {"name": "polygon", "all_points_x": list(xs), "all_points_y": list(ys)}
    else:
        shape = {"name": "rect", **dict(zip(_BOX, (box.x, box.y, box.width, box.height), strict=True))}
    attributes = {field: str(value) for field, value in attributes_of(word, score).items()}
    illegible = {"illegible": {"yes": True}} if word.ignore else {}
    return {"shape_attributes": shape, "region_attributes": {**attributes, **illegible}}
