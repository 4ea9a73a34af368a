"""Label Studio JSON: a list of tasks, whose regions are in percent of the page; boxes turn about their first corner."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.categories import means_ignored
from ocr.formats.export import Export, json_list
from ocr.formats.lines import shorten
from ocr.formats.names import ImageNames, is_image
from ocr.formats.native import page_size
from ocr.formats.page_builder import NewPage, PageBuilder
from ocr.formats.values import RotatedBox, as_rotated_box, expect, numbers, rounded, text_or_none

_BOX = ("x", "y", "width", "height")
_ANNOTATIONS = ("annotations", "completions")
_LABELS = ("labels", "rectanglelabels", "polygonlabels", "choices")
_NOT_READ = ("ellipse", "ellipselabels", "brush", "brushlabels", "bitmask", "bitmasklabels", "vector", "vectorlabels")
_UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")


def sniff_label_studio(root: Any) -> bool:
    """Whether a JSON value looks like tasks of Label Studio."""
    task = root[0] if isinstance(root, list) and root else root
    if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
        return False
    return any(field in task for field in (*_ANNOTATIONS, "predictions"))


def label_studio_categories(pages: PageBuilder) -> Iterator[str]:
    """The labels of the regions."""
    root = pages.root
    for task in root if isinstance(root, list) else [root]:
        for result in _results(task) if isinstance(task, dict) else ():
            if isinstance(result, dict) and result.get("type") != "choices":
                yield from _labels(result)


def read_label_studio(pages: PageBuilder) -> None:
    """Pages by image, of the tasks that have an annotation; predictions are not read."""
    where = pages.where
    tasks = pages.root if isinstance(pages.root, list) else [pages.root]
    waiting = 0
    for number, task in enumerate(tasks):
        place = f"{where}: task {task.get('id', number) if isinstance(task, dict) else number}"
        annotation = _annotation(task, place, pages.notes) if isinstance(task, dict) else {}
        if annotation is None:
            waiting += 1
            continue
        with pages.page(place) as page:
            page.of_path(_image_path(expect(task, dict, place, "the task"), place, pages.names))
            page.place = place
            _read_regions(pages, page, _list_of(annotation.get("result")))
    if waiting and waiting == len(tasks):
        raise AnnotationError(
            f"{where}: none of {waiting} tasks is annotated. Label some, and export again", value=waiting
        )
    if waiting:
        pages.notes.append(f"{where}: {waiting} of {len(tasks)} tasks left out: no annotation")


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _results(task: dict[str, Any]) -> list[Any]:
    annotation = _annotation(task, "", [])
    return [] if annotation is None else _list_of(annotation.get("result"))


def _annotation(task: dict[str, Any], place: str, notes: list[str]) -> dict[str, Any] | None:
    """The annotation that counts: the one marked as ground truth, else the last that was not skipped."""
    listed: list[Any] = next((task[field] for field in _ANNOTATIONS if isinstance(task.get(field), list)), [])
    done = [item for item in listed if isinstance(item, dict) and not item.get("was_cancelled")]
    marked = [item for item in done if item.get("ground_truth") is True]
    if len(marked or done) > 1:
        notes.append(f"{place}: {len(marked or done)} annotations, of which the last is read")
    return (marked or done)[-1] if done else None


def _image_path(task: dict[str, Any], place: str, names: ImageNames) -> str:
    data = task.get("data")
    written = [value for value in data.values() if isinstance(value, str)] if isinstance(data, dict) else []
    paths = [path for path in map(_path_of, written) if is_image(path)]
    if len(set(paths)) != 1:
        raise AnnotationError(
            f"{place}: {len(set(paths))} images in its data ({shorten(data, 60)}), expected one. Correct the task",
            setting="data",
            value=data,
        )
    name = names.of_path(paths[0])
    # Label Studio puts eight digits before the names of files that were uploaded to it.
    uploaded = _UPLOADED.fullmatch(name) if "/upload/" in paths[0] and not names.exists(name) else None
    return uploaded[1] if uploaded else paths[0]


def _path_of(address: str) -> str:
    """The file that an address names: /data/local-files/?d=a/b.jpg is a/b.jpg."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    local = parse_qs(parts.query).get("d")
    if local:
        return local[0]
    return unquote(f"{parts.scheme}://{parts.netloc}{parts.path}" if parts.scheme else parts.path)


def _labels(result: dict[str, Any]) -> list[str]:
    value = result.get("value")
    found = [value.get(field) for field in _LABELS] if isinstance(value, dict) else []
    return [label for labels in found if isinstance(labels, list) for label in labels if isinstance(label, str)]


def _read_regions(pages: PageBuilder, page: NewPage, results: list[Any]) -> None:
    """One region is several results of the same id: its shape, its labels, its text."""
    regions: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        if isinstance(result, dict) and isinstance(result.get("value"), dict):
            regions.setdefault(str(result.get("id")), []).append(result)
    sizes = set()
    for key, parts in regions.items():
        spot = f"{page.place}: region {key}"
        shape = next(filter(_has_shape, parts), None)
        labels = [label for part in parts for label in _labels(part)]
        named = [label for part in parts if part.get("type") != "choices" for label in _labels(part)]
        if shape is None or not pages.categories.is_text(named[0] if named else None):
            continue
        size = page_size(shape.get("original_width"), shape.get("original_height"), spot)
        if size is None:
            raise AnnotationError(
                f"{spot}: no original_width and original_height. Export the task again", setting="original_width"
            )
        sizes.add(size)
        text = next((found for part in parts if (found := _text(part)) is not None), None)
        meta = shape.get("meta")
        kept = meta if isinstance(meta, dict) else {}
        language, orientation = (text_or_none(kept.get(field)) for field in ("language", "orientation"))
        ignore = any(map(means_ignored, [*labels, text]))
        page.word(_outline(shape, size, spot), text, ignore, language, orientation, key=key)
    if len(sizes) > 1:
        raise AnnotationError(
            f"{page.place}: regions of pages of several sizes, {sorted(sizes)}. Export one task per page",
            value=sorted(sizes),
        )
    page.size = next(iter(sizes), None)


def _has_shape(part: dict[str, Any]) -> bool:
    value = part["value"]
    return "points" in value or {"width", "height"} <= value.keys() or part.get("type") in _NOT_READ


def _text(part: dict[str, Any]) -> str | None:
    text = part["value"].get("text")
    if isinstance(text, list):
        text = "\n".join(line for line in text if isinstance(line, str))
    return text or None if isinstance(text, str) else None


def _outline(shape: dict[str, Any], size: tuple[int, int], place: str) -> list[list[float]]:
    value, (width, height) = shape["value"], size
    if shape.get("type") in _NOT_READ:
        raise AnnotationError(
            f"{place}: a region of type {shape['type']} cannot be read. Draw it as a polygon",
            setting="type",
            value=shape["type"],
        )
    if shape.get("image_rotation") not in (0, None):
        raise AnnotationError(
            f"{place}: the page was turned in Label Studio (image_rotation={shape['image_rotation']!r}), so the "
            "frame of the region is unknown. Turn the image itself",
            setting="image_rotation",
            value=shape["image_rotation"],
        )
    if "points" in value:
        pairs = [expect(pair, list, place, "a point") for pair in expect(value["points"], list, place, '"points"')]
        points = [numbers(pair, place, "a coordinate") for pair in pairs]
        if any(len(point) != 2 for point in points):
            raise AnnotationError(
                f"{place}: points are {shorten(points)}, expected [[x, y], ...]. Correct the file",
                setting="points",
                value=points,
            )
        return [rounded((x * width / 100, y * height / 100)) for x, y in points]
    x, y, wide, high = numbers([value.get(side) for side in _BOX], place, "a side of the box")
    (degrees,) = numbers([value.get("rotation") or 0], place, "the rotation")
    box = (x * width / 100, y * height / 100, wide * width / 100, high * height / 100)
    return RotatedBox(*box, math.radians(degrees)).corners()


def write_label_studio(export: Export) -> Iterator[str]:
    """Tasks for the template of optical character recognition, whose label Illegible has to be added to it."""
    tasks = (_task_entry(name, page, export) for name, page in export.pages.items())
    yield from json_list("[", tasks, "]\n")


def _task_entry(name: str, page: Page, export: Export) -> dict[str, Any]:
    words = list(export.words(name, page))
    data = {"ocr": export.image_prefix + quote(name)}
    if notes := [word.note for word, _ in words if word.note is not None]:
        data["reason"] = "; ".join(notes)
    result = [entry for word, score in words for entry in _region_entries(word, score, export.size(name, page))]
    if export.scores is None:
        return {"data": data, "annotations": [{"result": result}]}
    scores = [score for _, score in words if score is not None]
    mean = sum(scores) / len(scores) if scores else 0.0
    return {
        "data": data,
        "predictions": [{"model_version": export.model_version, "score": round(mean, 4), "result": result}],
    }


def _region_entries(word: Word, score: float | None, size: tuple[int, int]) -> Iterator[dict[str, Any]]:
    width, height = size
    box = as_rotated_box(word.points)
    if box is None:
        kind, control = "polygon", "poly"
        value: dict[str, Any] = {
            "points": [[x / width * 100, y / height * 100] for x, y in word.points],
            "closed": True,
        }
    else:
        kind, control = "rectangle", "bbox"
        sides = box.x / width, box.y / height, box.width / width, box.height / height
        value = {field: side * 100 for field, side in zip(_BOX, sides, strict=True)}
        value["rotation"] = math.degrees(box.radians) % 360
    meta: dict[str, Any] = {
        field: kept for field in ("language", "orientation") if (kept := getattr(word, field)) is not None
    }
    if word.note is not None:
        meta["text"] = [word.note]  # Shown with the region.
    shared = {
        "id": word.key,
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        **({} if score is None else {"score": score}),
        **({"meta": meta} if meta else {}),
    }
    yield {**shared, "from_name": control, "type": kind, "value": value}
    label = "Illegible" if word.ignore else "Text"
    yield {**shared, "from_name": "label", "type": "labels", "value": {**value, "labels": [label]}}
    if word.text is not None:
        yield {**shared, "from_name": "transcription", "type": "textarea", "value": {**value, "text": [word.text]}}
