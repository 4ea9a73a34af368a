"""ALTO 2 to 4: an XML per page, of libraries, ABBYY, Tesseract, Kraken and eScriptorium; lines and their strings.

Coordinates are pixels, tenths of a millimetre or 1200ths of an inch (`MeasurementUnit`); what is not in pixels is
scaled by the size of the image, as few files state a resolution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page
from ocr.formats.categories import means_ignored
from ocr.formats.export import Export
from ocr.formats.page_builder import NewPage, PageBuilder
from ocr.formats.values import bounds, box_corners, numbers, rounded, written
from ocr.formats.xml_tree import xml_attribute, xml_text

PIXEL = "pixel"
UNITS = (PIXEL, "mm10", "inch1200")
_BOX = ("HPOS", "VPOS", "WIDTH", "HEIGHT")
Scale = tuple[float, float]
Part = tuple[Element, str | None, str | None, bool]
"""An element with an outline, its text, its language, and whether it is to be ignored."""


def sniff_alto(tag: str) -> bool:
    """Whether the first element of an XML is the root of ALTO."""
    return tag == "alto"


def read_alto(pages: PageBuilder) -> None:
    """The strings of each line, or the line if it has none; ignored are blocks without lines, and tags that say so."""
    root, where = pages.root, pages.where
    found = list(root.iter("Page")) if root.tag == "alto" else []
    if len(found) != 1:
        raise AnnotationError(
            f"{where}: {len(found)} <Page> in <{root.tag}>, expected one. Split the file, or set annotation_format",
            value=len(found),
        )
    (element,) = found
    with pages.page() as page:
        _name_image(pages, page)
        scale = _measure(pages, page, element)
        labels = {tag.get("ID", ""): tag.get("LABEL", "") for tag in root.iterfind("Tags/*")}
        for number, (part, text, language, ignore) in enumerate(_parts(element, labels), start=1):
            with pages.part():
                outline = _outline(part, f"{where}: {part.tag} {part.get('ID', number)}")
                points = [rounded((x * scale[0], y * scale[1])) for x, y in outline] if scale != (1, 1) else outline
                page.word(points, text, ignore, language, key=f"{number:04d}")


def _name_image(pages: PageBuilder, page: NewPage) -> None:
    """Files are named after the scan, which can be a deleted TIFF, and are next to the image of the same stem."""
    written = (pages.root.findtext("Description/sourceImageInformation/fileName") or "").strip()
    if written and (not pages.names.has_folder or pages.names.exists(pages.names.of_path(written))):
        page.of_path(written)
    else:
        page.of_stem(pages.path.stem)


def _measure(pages: PageBuilder, page: NewPage, element: Element) -> Scale:
    """The size of the page in pixels, and the pixels of a unit in both directions."""
    unit = (pages.root.findtext("Description/MeasurementUnit") or PIXEL).strip()
    if unit not in UNITS:
        raise AnnotationError(
            f"{page.place}: MeasurementUnit is {unit}, expected {', '.join(UNITS)}. Correct the file",
            setting="MeasurementUnit",
            value=unit,
        )
    sides = [element.get(side) for side in ("WIDTH", "HEIGHT")]
    if unit == PIXEL:
        if None not in sides:
            page.measured(*(round(side) for side in numbers(sides, page.place, "a side of the page")))
        return 1, 1
    width, height = numbers(sides, page.place, f"a side of the page, in {unit},")
    assert page.name is not None
    page.size = pages.names.size_of(page.name, page.place)
    if min(width, height) <= 0:
        raise AnnotationError(
            f"{page.place}: the page is {width} x {height} {unit}. Correct its size", value=(width, height)
        )
    return page.size[0] / width, page.size[1] / height


def _parts(page: Element, labels: Mapping[str, str]) -> Iterator[Part]:
    for block in page.iter("TextBlock"):
        language = block.get("LANG") or block.get("language")
        lines = block.findall("TextLine")
        if not lines:
            yield block, None, language, True
        for line in lines:
            spoken = line.get("LANG") or language
            strings = line.findall("String")
            ignore = _means_ignored(line, labels)
            # Kraken and eScriptorium draw the line, and put all of its text into one string.
            if len(strings) == 1 and _polygon(strings[0]) is None and _polygon(line) is not None:
                yield line, strings[0].get("CONTENT") or None, strings[0].get("LANG") or spoken, ignore
            elif not strings:
                yield line, None, spoken, ignore
            else:
                for item in strings:
                    is_ignored = ignore or _means_ignored(item, labels)
                    yield item, item.get("CONTENT") or None, item.get("LANG") or spoken, is_ignored


def _means_ignored(element: Element, labels: Mapping[str, str]) -> bool:
    return any(means_ignored(labels.get(tag)) for tag in element.get("TAGREFS", "").split())


def _polygon(element: Element) -> str | None:
    polygon = element.find("Shape/Polygon")
    return None if polygon is None else polygon.get("POINTS")


def _outline(element: Element, place: str) -> list[list[float]]:
    points = _polygon(element)
    if points is None:
        left, top, width, height = numbers([element.get(side) for side in _BOX], place, "HPOS, VPOS, WIDTH or HEIGHT")
        return box_corners(left, top, left + width, top + height)
    # "x,y x,y" and "x y x y" and "x,y,x,y" are all in use.
    sides = numbers(re.split(r"[\s,]+", points.strip()), place, '"POINTS"')
    if len(sides) % 2:
        raise AnnotationError(
            f"{place}: POINTS has {len(sides)} numbers, expected pairs. Correct it", setting="POINTS", value=points
        )
    return [sides[at : at + 2] for at in range(0, len(sides), 2)]


def write_alto_page(name: str, page: Page, export: Export) -> str:
    """A line with one string per word, in pixels; what is to be ignored has a tag that says so."""
    width, height = export.size(name, page)
    lines = []
    for number, (word, score) in enumerate(export.words(name, page), start=1):
        left, top, right, bottom = bounds(word.points)
        sides = zip(_BOX, (left, top, right - left, bottom - top), strict=True)
        box = " ".join(f'{side}="{written(at)}"' for side, at in sides)
        points = " ".join(f"{written(x)},{written(y)}" for x, y in word.points)
        more = f" CONTENT={xml_attribute(word.text or '')}"
        more += "" if score is None else f' WC="{written(min(1.0, max(0.0, score)))}"'
        more += "" if word.language is None else f" LANG={xml_attribute(word.language)}"
        more += ' TAGREFS="ignore"' if word.ignore else ""
        shape = f'<Shape><Polygon POINTS="{points}"/></Shape>'
        lines.append(
            f'<TextLine ID="line{number}" {box}><String ID="string{number}" {box}{more}>{shape}</String></TextLine>\n'
        )
    block = f'<TextBlock ID="block1" HPOS="0" VPOS="0" WIDTH="{width}" HEIGHT="{height}">\n{"".join(lines)}</TextBlock>'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#">\n'
        f"<Description><MeasurementUnit>{PIXEL}</MeasurementUnit>"
        f"<sourceImageInformation><fileName>{xml_text(name)}</fileName></sourceImageInformation></Description>\n"
        '<Tags><OtherTag ID="ignore" LABEL="ignore"/></Tags>\n'
        f'<Layout><Page ID="p1" PHYSICAL_IMG_NR="1" WIDTH="{width}" HEIGHT="{height}"><PrintSpace>\n'
        f"{block if lines else ''}</PrintSpace></Page></Layout>\n</alto>\n"
    )
