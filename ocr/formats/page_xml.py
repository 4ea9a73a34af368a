"""PAGE XML: one file per image, with regions, lines and words, as OCR-D, Transkribus and eScriptorium write it."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.lines import collected, raise_faults, shorten
from ocr.formats.native import text_size
from ocr.formats.shapes import numbers

_FINER = {"TextRegion": "TextLine", "TextLine": "Word", "Word": None}


def parse_page_xml(document: Document) -> dict[str, Page]:
    """The page of a file: the words of each line, or the line if it has none. A region without lines is ignored."""
    root, where = document.root, document.where
    page = root.find("Page") if root.tag == "PcGts" else None
    if page is None:
        raise AnnotationError(
            f"{where}: no <PcGts> with a <Page>: set annotation_format (--format) to its format", value=root.tag
        )
    words: list[Word] = []
    faults: list[AnnotationError] = []
    for element, language in _smallest(page, "TextRegion", None):
        key = f"{len(words) + len(faults) + 1:04d}"
        with collected(faults):
            points = _points(element, f"{where}: {element.tag} {element.get('id', key)}")
            words.append(Word(key, points, _text(element), element.tag == "TextRegion", language))
    raise_faults(faults)
    written = page.get("imageFilename")
    name = document.names.of_path(written) if written else document.names.of_stem(document.path.stem, where)
    return {name: Page(tuple(words), text_size(page.get("imageWidth"), page.get("imageHeight"), where))}


def _smallest(parent: Element, tag: str, language: str | None) -> Iterator[tuple[Element, str | None]]:
    """The smallest parts below an element, and the language that they or what is around them state."""
    # Regions may lie in tables and in other regions; lines and words only in what they belong to.
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
        raise AnnotationError(f"{place}: no <Coords>: add them, or remove the element", setting="Coords")
    written = coords.get("points")
    if written is None:
        # Until 2010 a point was an element of its own.
        pairs = [[point.get("x"), point.get("y")] for point in coords.findall("Point")]
    else:
        pairs = [list(pair.split(",")) for pair in written.split()]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise AnnotationError(
            f'{place}: points are {shorten(written)}, not "x,y x,y ...": correct the file',
            setting="points",
            value=written,
        )
    return [numbers(pair, place, "a coordinate") for pair in pairs]


def _text(element: Element) -> str | None:
    """The transcription with the lowest index, or without one: others are alternatives."""
    found = [item for item in element.findall("TextEquiv") if item.find("Unicode") is not None]
    found.sort(key=lambda item: int(item.get("index", "0")) if item.get("index", "0").isdecimal() else 0)
    return (found[0].findtext("Unicode") or None) if found else None
