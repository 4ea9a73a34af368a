"""COCO JSON with polygon segmentation, and its relatives COCO-Text and TextOCR."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page
from ocr.formats.categories import means_ignored
from ocr.formats.export import Export, attributes_of, json_list
from ocr.formats.lines import shorten, to_pairs
from ocr.formats.page_builder import NewPage, PageBuilder
from ocr.formats.values import TRANSCRIPTIONS, area_of, bounds, box_corners, text_or_none

OUTLINES = ("segmentation", "points", "mask", "polygon")
BEZIER_SAMPLES = 10
"""Points per side of a Bezier outline: of 3,000 generated curves, none is off by more than 0.9 % of its length."""


def sniff_coco(root: Any) -> bool:
    """Whether a JSON value looks like COCO or TextOCR."""
    if not isinstance(root, dict):
        return False
    return (isinstance(root.get("images"), list) and "annotations" in root) or {"imgs", "anns"} <= root.keys()


def coco_categories(pages: PageBuilder) -> Iterator[str]:
    """The names of the categories that the file lists."""
    yield from _category_names(pages.root).values()


def read_coco(pages: PageBuilder) -> None:
    """Pages by image; an image without annotations is a page without text."""
    root, where = pages.root, pages.where
    if not isinstance(root, dict):
        raise AnnotationError(f"{where}: the file holds a {type(root).__name__}, not an object. Correct it", value=root)
    text_ocr = isinstance(root.get("imgs"), dict) and isinstance(root.get("anns"), dict)
    images, annotations = _sections(root, where, text_ocr)
    page_of: dict[str, NewPage] = {}
    for image in images:
        if not isinstance(image, dict) or not isinstance(image.get("file_name"), str) or "id" not in image:
            raise AnnotationError(
                f'{where}: image {shorten(image)} has no "id" or no "file_name". Correct the file', value=image
            )
        key = str(image["id"])
        with pages.page(f"{where}: image id {key}") as page:
            page.of_path(image["file_name"])
            if key in page_of:
                raise AnnotationError(
                    f"{where}: image id {key}, {page.name}, occurs twice. Remove one", value=page.name
                )
            page.measured(image.get("width"), image.get("height"))
        page_of[key] = page
    categories = _category_names(root)
    for annotation in annotations:
        with pages.part():
            category = categories.get(str(annotation.get("category_id"))) if isinstance(annotation, dict) else None
            if not isinstance(annotation, dict) or pages.categories.is_text(category):
                page = _page_of(annotation, page_of, where)
                # TextOCR marks illegible words with a dot.
                dotted = text_ocr and annotation.get("utf8_string") == "." and "legibility" not in annotation
                _read_annotation(page, annotation, dotted or means_ignored(category))


def _category_names(root: Any) -> dict[str, str]:
    listed = root.get("categories") if isinstance(root, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return {str(entry.get("id")): str(entry.get("name")) for entry in entries}


def _page_of(annotation: Any, page_of: dict[str, NewPage], where: str) -> NewPage:
    if not isinstance(annotation, dict):
        raise AnnotationError(
            f"{where}: annotation {shorten(annotation)} is not an object. Correct the file", value=annotation
        )
    page = page_of.get(str(annotation.get("image_id")))
    if page is None:
        raise AnnotationError(
            f"{where}: annotation {annotation.get('id')} is of image_id={annotation.get('image_id')!r}, "
            "which is not among the images. Add the image or remove the annotation",
            setting="image_id",
            value=annotation.get("image_id"),
        )
    return page


def _sections(root: dict[str, Any], where: str, text_ocr: bool) -> tuple[list[Any], list[Any]]:
    if text_ocr:
        return list(root["imgs"].values()), list(root["anns"].values())
    for section in ("images", "annotations"):
        if not isinstance(root.get(section), list):
            raise AnnotationError(
                f'{where}: "{section}" is {shorten(root.get(section), 40)}, expected a list. '
                "Set annotation_format to the format of the file",
                setting=section,
                value=root.get(section),
            )
    return root["images"], root["annotations"]


def _read_annotation(page: NewPage, annotation: dict[str, Any], illegible: bool) -> None:
    key = str(annotation["id"]) if "id" in annotation else page.key
    attributes = annotation.get("attributes")
    # CVAT keeps in attributes what others have next to the outline.
    known = {**attributes, **annotation} if isinstance(attributes, dict) else annotation
    text = next((known[field] for field in TRANSCRIPTIONS if isinstance(known.get(field), str)), None)
    ignore = illegible or _is_ignored(annotation)
    language, orientation = known.get("language"), text_or_none(known.get("orientation"))
    outlines = _outlines(annotation, f"{page.place}: word {key}")
    # A word that a post covers has several parts. Keeping only the largest would teach that the others are background.
    for part, outline in enumerate(outlines, start=1):
        page.word(outline, text, ignore, language, orientation, key if len(outlines) == 1 else f"{key}.{part}")


def _is_ignored(annotation: dict[str, Any]) -> bool:
    attributes = annotation.get("attributes")
    flags = attributes if isinstance(attributes, dict) else {}
    return (
        bool(annotation.get("iscrowd"))
        or bool(annotation.get("ignore"))
        or annotation.get("legibility") == "illegible"
        or flags.get("legible") is False
        or flags.get("illegible") is True
    )


def _outlines(annotation: dict[str, Any], place: str) -> list[list[Any]]:
    outline = next((annotation[field] for field in OUTLINES if annotation.get(field)), None)
    if isinstance(outline, dict):
        # COCO writes crowds as masks; for a region that is only ignored, its box is enough.
        if not annotation.get("iscrowd"):
            raise AnnotationError(
                f"{place}: segmentation is a run-length mask, expected polygons. Export it as polygons",
                setting="segmentation",
                value=outline,
            )
        outline = None
    if outline is None and annotation.get("bezier_pts"):
        return [_sample_bezier(annotation["bezier_pts"], place)]
    if outline is None:
        return [_box_corners(annotation.get("bbox"), place)]
    if isinstance(outline, list) and not isinstance(outline[0], list):
        return [to_pairs(outline)]
    if not isinstance(outline, list) or not all(isinstance(part, list) for part in outline):
        raise AnnotationError(
            f"{place}: segmentation is {shorten(outline)}, expected a list of polygons. Correct the file",
            setting="segmentation",
            value=outline,
        )
    if all(len(part) == 2 for part in outline):
        return [outline]
    return [part if part and isinstance(part[0], list) else to_pairs(part) for part in outline]


def _box_corners(box: Any, place: str) -> list[list[float]]:
    if not isinstance(box, list) or len(box) != 4 or not all(type(number) in (int, float) for number in box):
        raise AnnotationError(
            f"{place}: no polygon, and bbox is {shorten(box)}, expected [x, y, width, height]. Add one",
            setting="bbox",
            value=box,
        )
    left, top, width, height = box
    return box_corners(left, top, left + width, top + height)


def _sample_bezier(numbers: Any, place: str) -> list[list[float]]:
    """The outline of two cubic Bezier curves, as AdelaiDet writes it: four points along the top, four back below."""
    if (
        not isinstance(numbers, list)
        or len(numbers) != 16
        or not all(type(number) in (int, float) for number in numbers)
    ):
        raise AnnotationError(
            f"{place}: bezier_pts is {shorten(numbers)}, expected 16 numbers. Correct the file",
            setting="bezier_pts",
            value=numbers,
        )
    points: list[list[float]] = []
    for start in (0, 8):
        curve = to_pairs(numbers[start : start + 8])
        for step in range(BEZIER_SAMPLES):
            t = step / (BEZIER_SAMPLES - 1)
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
            points.append(
                [sum(weight * point[axis] for weight, point in zip(weights, curve, strict=True)) for axis in (0, 1)]
            )
    return points


def write_coco(export: Export) -> Iterator[str]:
    """One category, text. Attributes are written twice: where CVAT reads them, and next to the outline."""
    yield '{"categories": [{"id": 1, "name": "text", "supercategory": ""}],'
    images = (_image_entry(number, name, page) for number, (name, page) in enumerate(export.pages.items(), start=1))
    yield from json_list('\n"images": [', images, "],")
    yield from json_list('\n"annotations": [', _annotation_entries(export), "]}\n")


def _image_entry(number: int, name: str, page: Page) -> dict[str, Any]:
    size = {} if page.size is None else {"width": page.size[0], "height": page.size[1]}
    return {"id": number, "file_name": name, **size}


def _annotation_entries(export: Export) -> Iterator[dict[str, Any]]:
    made = count(1)
    for number, (name, page) in enumerate(export.pages.items(), start=1):
        for word, score in export.words(name, page):
            left, top, right, bottom = bounds(word.points)
            kept = attributes_of(word, score)
            yield {
                "id": next(made),
                "image_id": number,
                "category_id": 1,
                "segmentation": [[side for point in word.points for side in point]],
                "bbox": [left, top, right - left, bottom - top],
                "area": area_of(word.points),
                "iscrowd": 0,
                **({"ignore": 1} if word.ignore else {}),
                **kept,
                "attributes": {**kept, "illegible": word.ignore},
            }
