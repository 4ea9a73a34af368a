"""CVAT for images 1.1: one XML, per image its size, its boxes and polygons, and their attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ocr.errors import AnnotationError
from ocr.formats.annotation import Word
from ocr.formats.categories import means_ignored
from ocr.formats.export import Export, attributes_of
from ocr.formats.lines import shorten
from ocr.formats.page_builder import NewPage, PageBuilder
from ocr.formats.values import TRANSCRIPTIONS, about_centre, as_rotated_box, box_corners, is_true, numbers, written
from ocr.formats.xml_tree import xml_attribute, xml_text

_BOX = ("xtl", "ytl", "xbr", "ybr")
_READ = ("box", "polygon")
_WITHOUT_AREA = ("points", "polyline", "skeleton")
_REFUSED = ("ellipse", "mask", "cuboid")


def cvat_categories(pages: PageBuilder) -> Iterator[str]:
    """The labels of the task and of its shapes."""
    for label in pages.root.iter("label"):
        yield label.findtext("name") or ""
    for image in pages.root.iter("image"):
        yield from (shape.get("label", "") for shape in image if shape.tag in _READ + _REFUSED)


def sniff_cvat(tag: str) -> bool:
    """Whether the first element of an XML is the root of CVAT."""
    return tag == "annotations"


def read_cvat(pages: PageBuilder) -> None:
    """Pages by image; an image without shapes is a page without text."""
    root, where = pages.root, pages.where
    if root.find("track") is not None:
        raise AnnotationError(f"{where}: this is CVAT for video. Export the task as CVAT for images 1.1", value="track")
    for image in root.iter("image"):
        with pages.page(f"{where}: image {image.get('id')}") as page:
            written = image.get("name")
            if not written:
                raise AnnotationError(f"{page.place} has no name. Correct the file", setting="name", value=written)
            page.of_path(written)
            page.measured(image.get("width"), image.get("height"))
            for number, shape in enumerate(image, start=1):
                _read_shape(pages, page, shape, number)


def _read_shape(pages: PageBuilder, page: NewPage, shape: Element, number: int) -> None:
    label, place = shape.get("label"), f"{page.place}: {shape.tag} {number}"
    if shape.tag in _WITHOUT_AREA:
        pages.notes.append(f"{place}: skipped, it has no area")
    if shape.tag not in _READ + _REFUSED or not pages.categories.is_text(label):
        return
    if shape.tag in _REFUSED:
        raise AnnotationError(f"{place}: a {shape.tag} cannot be read. Draw it as a polygon", value=shape.tag)
    attributes = {item.get("name", "").lower(): (item.text or "") for item in shape.iter("attribute")}
    text = next((attributes[field] for field in TRANSCRIPTIONS if field in attributes), None)
    flags = [attribute for attribute, value in attributes.items() if is_true(value)]
    ignore = any(map(means_ignored, [label, text, *flags]))
    points = _box(shape, place) if shape.tag == "box" else _polygon(shape.get("points", ""), place)
    language, orientation = attributes.get("language") or None, attributes.get("orientation") or None
    page.word(points, text or None, ignore, language, orientation, key=f"{number:04d}")


def _box(shape: Element, place: str) -> list[list[float]]:
    left, top, right, bottom, degrees = numbers(
        [*(shape.get(side) for side in _BOX), shape.get("rotation", "0")], place, "a side of the box"
    )
    if not degrees:
        return box_corners(left, top, right, bottom)
    middle = (left + right) / 2, (top + bottom) / 2
    return about_centre(*middle, right - left, bottom - top, math.radians(degrees)).corners()


def _polygon(written: str, place: str) -> list[list[float]]:
    pairs = [pair.split(",") for pair in written.split(";") if pair]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise AnnotationError(
            f'{place}: points are {shorten(written)}, expected "x,y;x,y;...". Correct the file',
            setting="points",
            value=written,
        )
    return [numbers(pair, place, "a coordinate") for pair in pairs]


def write_cvat(export: Export) -> Iterator[str]:
    """Shapes of one label, text, whose attributes the task must have to keep them."""
    yield '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
    for number, (name, page) in enumerate(export.pages.items()):
        width, height = export.size(name, page)
        yield f'<image id="{number}" name={xml_attribute(name)} width="{width}" height="{height}">\n'
        for word, score in export.words(name, page):
            attributes = {**attributes_of(word, score), "ignore": str(word.ignore).lower()}
            source = "manual" if score is None else "auto"
            yield f'<{_shape(word)} label="text" source="{source}" occluded="0" z_order="0">\n'
            for field, value in attributes.items():
                yield f'<attribute name="{field}">{xml_text(str(value))}</attribute>\n'
            yield "</polygon>\n" if as_rotated_box(word.points) is None else "</box>\n"
        yield "</image>\n"
    yield "</annotations>\n"


def _shape(word: Word) -> str:
    box = as_rotated_box(word.points)
    if box is None:
        return f'polygon points="{";".join(f"{written(x)},{written(y)}" for x, y in word.points)}"'
    (x, y), degrees = box.centre, math.degrees(box.radians) % 360
    sides = x - box.width / 2, y - box.height / 2, x + box.width / 2, y + box.height / 2
    corners = " ".join(f'{side}="{written(at)}"' for side, at in zip(_BOX, sides, strict=True))
    return f'box {corners} rotation="{written(degrees)}"' if degrees else f"box {corners}"
