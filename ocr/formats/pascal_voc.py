"""Pascal VOC: an XML per image, a `<bndbox>` per object; also the rotated `<robndbox>` of roLabelImg."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page
from ocr.formats.categories import means_ignored
from ocr.formats.export import Export, upright_box
from ocr.formats.page_builder import PageBuilder
from ocr.formats.values import about_centre, bounds, box_corners, is_true, numbers, written
from ocr.formats.xml_tree import xml_text

_BOX = ("xmin", "ymin", "xmax", "ymax")
_ROTATED = ("cx", "cy", "w", "h", "angle")


def voc_categories(pages: PageBuilder) -> Iterator[str]:
    """The names of the objects."""
    for item in pages.root.iter("object"):
        yield _text(item, "name")


def sniff_voc(tag: str) -> bool:
    """Whether the first element of an XML is the root of Pascal VOC."""
    return tag == "annotation"


def read_voc(pages: PageBuilder) -> None:
    """`difficult` objects are ignored. Coordinates are as written, including those that count from 1."""
    root, where = pages.root, pages.where
    if root.tag != "annotation":
        raise AnnotationError(
            f"{where}: the XML is <{root.tag}>, expected <annotation>. Set annotation_format", value=root.tag
        )
    with pages.page() as page:
        written = _text(root, "filename")
        page.of_path(written) if written else page.of_stem(pages.path.stem)
        width, height = (_text(root, f"size/{side}") for side in ("width", "height"))
        # Some tools write 0 x 0 for a size that they do not know.
        if width and height and not width == height == "0":
            page.measured(width, height)
        for number, item in enumerate(root.iter("object"), start=1):
            with pages.part():
                name = _text(item, "name")
                if pages.categories.is_text(name):
                    ignore = is_true(_text(item, "difficult")) or means_ignored(name)
                    page.word(_outline(item, f"{where}: object {number}"), ignore=ignore, key=f"{number:04d}")


def _outline(item: Element, place: str) -> list[list[float]]:
    rotated, box = item.find("robndbox"), item.find("bndbox")
    if rotated is not None:
        x, y, width, height, angle = numbers([_text(rotated, side) for side in _ROTATED], place, "<robndbox>")
        return about_centre(x, y, width, height, angle).corners()
    if box is None:
        raise AnnotationError(
            f"{place}: no <bndbox>. Add one, or convert the file if it is not Pascal VOC", setting="bndbox"
        )
    return box_corners(*numbers([_text(box, side) for side in _BOX], place, "<bndbox>"))


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
