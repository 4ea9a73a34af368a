"""PAGE XML: one file per image, with regions, lines and words, as OCR-D, Transkribus and eScriptorium write it."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ocr.errors import AnnotationError
from ocr.formats.lines import shorten
from ocr.formats.page_builder import PageBuilder
from ocr.formats.values import numbers

_FINER = {"TextRegion": "TextLine", "TextLine": "Word", "Word": None}


def sniff_page_xml(tag: str) -> bool:
    """Whether the first element of an XML is the root of PAGE."""
    return tag == "PcGts"


def read_page_xml(pages: PageBuilder) -> None:
    """The words of each line, or the line if it has none. A region without lines is ignored."""
    element = pages.root.find("Page") if pages.root.tag == "PcGts" else None
    if element is None:
        raise AnnotationError(
            f"{pages.where}: no <PcGts> with a <Page>. Set annotation_format to its format", value=pages.root.tag
        )
    with pages.page() as page:
        written = element.get("imageFilename")
        page.of_path(written) if written else page.of_stem(pages.path.stem)
        page.measured(element.get("imageWidth"), element.get("imageHeight"))
        for number, (region, language) in enumerate(_smallest(element, "TextRegion", None), start=1):
            key = f"{number:04d}"
            with pages.part():
                points = _points(region, f"{pages.where}: {region.tag} {region.get('id', key)}")
                page.word(points, _text(region), region.tag == "TextRegion", language, key=key)


def _smallest(parent: Element, tag: str, language: str | None) -> Iterator[tuple[Element, str | None]]:
    """The smallest parts below an element, and the language that they or what is around them state."""
    # Regions can be inside tables and other regions; lines and words only inside their own parent.
    for element in parent.iter(tag) if tag == "TextRegion" else parent.findall(tag):
        spoken = element.get("language") or element.get("primaryLanguage") or language
        finer = _FINER[tag]
        if finer is not None and element.find(finer) is not None:
            yield from _smallest(element, finer, spoken)
        elif tag != "TextRegion" or element.find("TextRegion") is None:
            yield element, spoken


def _points(element: Element, place: str) -> list[list[float]]:
    coords = element.find("Coords")
    if coords is None:
        raise AnnotationError(f"{place}: no <Coords>. Add them, or remove the element", setting="Coords")
    written = coords.get("points")
    if written is None:
        # Until 2010 a point was an element of its own.
        pairs = [[point.get("x"), point.get("y")] for point in coords.findall("Point")]
    else:
        pairs = [list(pair.split(",")) for pair in written.split()]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise AnnotationError(
            f'{place}: points are {shorten(written)}, expected "x,y x,y ...". Correct the file',
            setting="points",
            value=written,
        )
    return [numbers(pair, place, "a coordinate") for pair in pairs]


def _text(element: Element) -> str | None:
    """The transcription with the lowest index, or without one: others are alternatives."""
    found = [item for item in element.findall("TextEquiv") if item.find("Unicode") is not None]
    found.sort(key=lambda item: int(item.get("index", "0")) if item.get("index", "0").isdecimal() else 0)
    return (found[0].findtext("Unicode") or None) if found else None
