"""LabelMe: a JSON per image with `shapes`; a shape's text is its description, or its label where labels are texts."""

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
from ocr.formats.values import bounds, box_corners, expect, is_true, numbers, text_or_none

_WITHOUT_AREA = ("point", "points", "line", "linestrip")
# The last two are of X-AnyLabeling, whose files are otherwise the same.
_OUTLINES = ("polygon", "rotation", "quadrilateral")


def sniff_labelme(root: Any) -> bool:
    """Whether a JSON value looks like a page of LabelMe."""
    return isinstance(root, dict) and isinstance(root.get("shapes"), list) and "imagePath" in root


def labelme_categories(pages: PageBuilder) -> Iterator[str]:
    """The label of each shape."""
    root = pages.root
    shapes = [shape for shape in root["shapes"] if isinstance(shape, dict)] if sniff_labelme(root) else []
    yield from (str(shape.get("label")) for shape in shapes)


def read_labelme(pages: PageBuilder) -> None:
    """A shape's text is its description, or its label where labels are texts."""
    where = pages.where
    root = expect(pages.root, dict, where, "the file")
    with pages.page() as page:
        written = text_or_none(root.get("imagePath"))
        page.of_path(written) if written else page.of_stem(pages.path.stem)
        page.measured(root.get("imageWidth"), root.get("imageHeight"))
        for number, shape in enumerate(expect(root.get("shapes"), list, where, '"shapes"'), start=1):
            with pages.part():
                _read_shape(pages, page, shape, number)


def _read_shape(pages: PageBuilder, page: NewPage, shape: Any, number: int) -> None:
    place = f"{pages.where}: shape {number}"
    label = expect(expect(shape, dict, place, "the shape").get("label"), str, place, '"label"')
    if not pages.categories.is_text(label):
        return
    if shape.get("shape_type") in _WITHOUT_AREA:
        pages.notes.append(f"{place}: skipped, a {shape['shape_type']} has no area")
        return
    text = text_or_none(shape.get("description")) or (label if pages.categories.are_texts else None)
    flags = shape.get("flags")
    named = [name for name, value in flags.items() if is_true(value)] if isinstance(flags, dict) else []
    ignore = any(map(means_ignored, [label, text, *named])) or is_true(shape.get("difficult"))
    language, orientation = (text_or_none(shape.get(field)) for field in ("language", "orientation"))
    page.word(_outline(shape, place), text, ignore, language, orientation, key=f"{number:04d}")


def _outline(shape: dict[str, Any], place: str) -> list[list[float]]:
    kind = shape.get("shape_type", "polygon")
    listed = expect(shape.get("points"), list, place, '"points"')
    points = [numbers(expect(point, list, place, "a point"), place, "a coordinate") for point in listed]
    if kind in _OUTLINES:
        return points
    if kind != "rectangle":
        raise AnnotationError(
            f"{place}: a {kind} cannot be read. Draw it as a polygon", setting="shape_type", value=kind
        )
    if any(len(point) != 2 for point in points) or len(points) not in (2, 4):
        raise AnnotationError(
            f"{place}: the corners of a rectangle are {listed}, expected two points. Correct the file",
            setting="points",
            value=listed,
        )
    return points if len(points) == 4 else box_corners(*bounds(points))


def write_labelme_page(name: str, page: Page, export: Export) -> str:
    """A page whose image is next to it, or in the image folder. LabelMe keeps fields that it does not know."""
    file = export.target / name
    image = file.name if export.image_path is None else os.path.relpath(export.image_path / name, file.parent)
    width, height = page.size or (None, None)
    content: dict[str, Any] = {
        "version": "5.4.1",
        "flags": {},
        "shapes": [_shape_entry(word, score) for word, score in export.words(name, page)],
        "imagePath": image.replace(os.sep, "/"),
        "imageData": None,
        "imageHeight": height,
        "imageWidth": width,
    }
    return to_json(content) + "\n"


def _shape_entry(word: Word, score: float | None) -> dict[str, Any]:
    kept = attributes_of(word, score)
    is_box = upright_box(word.points) is not None
    return {
        "label": "text",
        "points": [word.points[0], word.points[2]] if is_box else word.points,
        "group_id": None,
        "description": kept.pop("transcription", ""),
        "shape_type": "rectangle" if is_box else "polygon",
        "flags": {"ignore": True} if word.ignore else {},
        **kept,
    }
