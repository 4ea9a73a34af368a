"""docTR: one JSON, `{"a.png": {"img_dimensions": [...], "img_hash": "...", "polygons": [[[x, y], ...], ...]}}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.document import Document
from ocr.formats.fields import expect
from ocr.formats.lines import collected, raise_faults


def is_doctr(root: Any) -> bool:
    """Whether a JSON value looks like docTR's labels of a detector."""
    return isinstance(root, dict) and bool(root) and _has_polygons(next(iter(root.values())))


def _has_polygons(page: Any) -> bool:
    return isinstance(page, dict) and "polygons" in page


def doctr_categories(root: Any) -> Iterator[str]:
    """The classes, if polygons are given by class."""
    for page in root.values() if isinstance(root, dict) else ():
        if _has_polygons(page) and isinstance(page["polygons"], dict):
            yield from page["polygons"]


def parse_doctr(document: Document) -> dict[str, Page]:
    """Pages by image. Their size is not read: docTR does not say which of the two numbers is the width."""
    where = document.where
    pages: dict[str, Page] = {}
    faults: list[AnnotationError] = []
    for written, page in expect(document.root, dict, where, "the file").items():
        with collected(faults):
            name, place = document.names.of_path(written), f"{where}: {written}"
            if name in pages:
                raise AnnotationError(f"{place}: {name} occurs twice: remove one of them", value=name)
            polygons = expect(page, dict, place, "the page").get("polygons")
            by_class = polygons if isinstance(polygons, dict) else {None: polygons}
            outlines: list[Any] = []
            for category, found in by_class.items():
                listed = expect(found, list, place, '"polygons"')
                # Asked for each, so that those left out are counted.
                outlines.extend(points for points in listed if document.categories.is_text(category))
            pages[name] = Page(tuple([_word(points, at, place) for at, points in enumerate(outlines, start=1)]))
    raise_faults(faults)
    return pages


def _word(points: Any, at: int, place: str) -> Word:
    return Word(f"{at:04d}", expect(points, list, f"{place}: word {at:04d}", "the polygon"))
