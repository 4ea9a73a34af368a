"""Pascal VOC: an XML per image, a `<bndbox>` per object; also the rotated `<robndbox>` of roLabelImg."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.categories import means_ignored
from ocr.formats.document import Document
from ocr.formats.export import Export, upright_box
from ocr.formats.fields import is_true
from ocr.formats.lines import collected, raise_faults
from ocr.formats.native import text_size
from ocr.formats.shapes import about_centre, bounds, box_corners, numbers, written
from ocr.formats.xml_tree import xml_text

_BOX = ("xmin", "ymin", "xmax", "ymax")
_ROTATED = ("cx", "cy", "w", "h", "angle")


def voc_categories(root: Element) -> Iterator[str]:
    """The names of the objects."""
    for item in root.iter("object"):
        yield _text(item, "name")


def parse_voc(document: Document) -> dict[str, Page]:
    """The page of a file; `difficult` objects are ignored. Coordinates are as written, also if they count from 1."""
    root, where = document.root, document.where
    if root.tag != "annotation":
        raise AnnotationError(
            f"{where}: the XML is <{root.tag}>, and Pascal VOC has <annotation>: set --format", value=root.tag
        )
    words: list[Word] = []
    faults: list[AnnotationError] = []
    for number, item in enumerate(root.iter("object"), start=1):
        with collected(faults):
            name = _text(item, "name")
            if document.categories.is_text(name):
                ignore = is_true(_text(item, "difficult")) or means_ignored(name)
                words.append(Word(f"{number:04d}", _outline(item, f"{where}: object {number}"), None, ignore))
    raise_faults(faults)
    written = _text(root, "filename")
    name = document.names.of_path(written) if written else document.names.of_stem(document.path.stem, where)
    return {name: Page(tuple(words), _size(root, where))}


def _outline(item: Element, place: str) -> list[list[float]]:
    rotated, box = item.find("robndbox"), item.find("bndbox")
    if rotated is not None:
        x, y, width, height, angle = numbers([_text(rotated, side) for side in _ROTATED], place, "<robndbox>")
        return about_centre(x, y, width, height, angle).corners()
    if box is None:
        raise AnnotationError(
            f"{place}: no <bndbox>: add one, or convert the file if it is not Pascal VOC", setting="bndbox"
        )
    return box_corners(*numbers([_text(box, side) for side in _BOX], place, "<bndbox>"))


def _size(root: Element, where: str) -> tuple[int, int] | None:
    width, height = (_text(root, f"size/{side}") for side in ("width", "height"))
    # Some tools write 0 x 0 for a size that they do not know.
    if not width or not height or width == height == "0":
        return None
    return text_size(width, height, where)


def _text(parent: Element, path: str) -> str:
    return (parent.findtext(path) or "").strip()


def write_voc_page(name: str, page: Page, export: Export) -> str:
    """The boxes around the words: Pascal VOC has no other outlines, and no texts."""
    width, height = export.size(name, page)
    parts = [
        f"<annotation>\n<filename>{xml_text(name)}</filename>\n",
        f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>\n",
    ]
    others = 0
    for word, _ in export.words(name, page):
        others += upright_box(word.points) is None
        sides = zip(_BOX, bounds(word.points), strict=True)
        box = "".join(f"<{side}>{written(at)}</{side}>" for side, at in sides)
        parts.append(
            "<object><name>text</name><pose>Unspecified</pose><truncated>0</truncated>"
            f"<difficult>{int(word.ignore)}</difficult><bndbox>{box}</bndbox></object>\n"
        )
    if others:
        export.notes.append(f"{name}: {others} words that are not upright boxes are written as the boxes around them")
    return "".join([*parts, "</annotation>\n"])
