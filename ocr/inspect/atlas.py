"""The atlas: all pages and errors as one HTML file that opens from disk and needs nothing else."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.geometry.polygons import Polygons
from ocr.inspect.atlas_parts import causes_section, details_section, options, tiles
from ocr.inspect.compare import Comparison, PageChange
from ocr.inspect.inspection import Inspection
from ocr.inspect.page import PageInput, page_rectangle
from ocr.inspect.result import PageResult

QUALITY = 55
"""Of WebP: text of 10 pixels stays legible, and a page of 960 takes about 50 kB."""
CHANGES = {
    "gained": "found now, and not before",
    "lost": "found before, and not now",
    "gone": "a false box of before",
    "new": "a false box that was not there before",
}


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A page as the model saw it, without padding."""

    webp: bytes
    width: int
    height: int


def take_picture(page: PageInput, longest_side: int) -> Picture:
    """The page's part of the model's image, no larger than `longest_side`."""
    left, top, right, bottom = page_rectangle(page)
    x, y = max(0, round(left)), max(0, round(top))
    cut = page.image_hwc[y : max(y + 1, round(bottom)), x : max(x + 1, round(right))]
    shrink = longest_side / max(cut.shape[:2])
    if shrink < 1:
        cut = np.asarray(cv2.resize(cut, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    encoded = cv2.imencode(".webp", np.ascontiguousarray(cut[:, :, ::-1]), [cv2.IMWRITE_WEBP_QUALITY, QUALITY])[1]
    return Picture(encoded.tobytes(), cut.shape[1], cut.shape[0])


def write_atlas(
    inspection: Inspection, pictures: Mapping[str, Picture], path: Path, comparison: Comparison | None = None
) -> None:
    """Write the page, completely or not at all; pages go to the disk one after the other."""
    changes = {change.after.name: change for change in comparison.pages} if comparison is not None else {}
    with replacing(path) as stream:
        for part in _parts(inspection, pictures, changes):
            stream.write(part.encode())


def _parts(inspection: Inspection, pictures: Mapping[str, Picture], changes: Mapping[str, PageChange]) -> Iterator[str]:
    room = files("ocr.inspect") / "atlas_page"
    drawn = [page for page in inspection.worst if page.name in pictures]
    errors: dict[str, list[Any]] = {}
    for error in inspection.errors:
        errors.setdefault(error.page, []).append(error)
    index, bodies = [], []
    for number, page in enumerate(drawn):
        picture, change = pictures[page.name], changes.get(page.name)
        marks = [_mark(error, page, picture) for error in errors.get(page.name, [])]
        marks += _change_marks(change, picture) if change is not None else []
        index.append(_index_entry(number, page, picture, marks, change))
        bodies.append((number, page, picture, marks))
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>ocr inspect: {escape(Path(inspection.detector).name)}</title>"
        f"<style>{(room / 'style.css').read_text()}</style></head><body>"
        f"<header><h1>ocr inspect</h1><p><code>{escape(inspection.detector)}</code> on "
        f"<code>{escape(inspection.data)}</code></p>{tiles(inspection)}</header>"
        f"<main>{causes_section(inspection.gains)}{details_section(inspection)}"
    )
    order = '<option value="change">largest loss</option>' if changes else ""
    body = (room / "body.html").read_text().replace("{{change}}", order)
    yield body.replace("{{causes}}", options(inspection.gains, bool(changes)))
    yield "</main>" + _script("index", {"pages": index})
    for number, page, picture, marks in bodies:
        yield _script(f"page-{number}", _page_data(page, picture, marks))
    yield f"<script>{(room / 'script.js').read_text()}</script></body></html>\n"


def _script(name: str, data: Any) -> str:
    """Data that the script reads by its id; a browser does not run it."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _index_entry(
    number: int, page: PageResult, picture: Picture, marks: list[dict[str, Any]], change: PageChange | None
) -> dict[str, Any]:
    """What filters and orders need of a page; the rest is read when it is shown."""
    counted = Counter((mark["kind"], mark["cause"]) for mark in marks)
    entry = {
        "id": number,
        "name": page.name,
        "width": picture.width,
        "height": picture.height,
        "hmean": round(page.counts.hmean, 4),
        "missed": page.missed,
        "false": page.false,
        "marks": [[kind, cause, count] for (kind, cause), count in counted.items()],
    }
    return entry if change is None else entry | {"change": round(change.points, 2)}


def _page_data(page: PageResult, picture: Picture, marks: list[dict[str, Any]]) -> dict[str, Any]:
    scale = _scale(page, picture)
    kept = page.found | page.truth.ignore
    truth = zip(page.truth.select(kept), page.truth.ignore[kept].tolist(), strict=True)
    return {
        "picture": base64.b64encode(picture.webp).decode(),
        "truth": [[_flat(outline, scale), ignored] for outline, ignored in truth],
        "boxes": [_flat(outline, scale) for outline in page.detections.polygons.select(page.right)],
        "errors": marks,
    }


def _mark(error: Any, page: PageResult, picture: Picture) -> dict[str, Any]:
    points = _flat(np.array(error.points), _scale(page, picture))
    text = {"cause": error.cause, "detail": error.detail, "text": error.text}
    return {"kind": error.kind, **text, "score": error.score, "points": points}


def _change_marks(change: PageChange, picture: Picture) -> list[dict[str, Any]]:
    """What got better or worse on a page, drawn like its errors."""
    outlines: dict[str, tuple[Polygons, NDArray[np.int64]]] = {
        "gained": (change.after.truth, change.gained),
        "lost": (change.after.truth, change.lost),
        "gone": (change.before.detections.polygons, change.gone),
        "new": (change.after.detections.polygons, change.new),
    }
    marks = []
    for kind, (polygons, chosen) in outlines.items():
        all_of_them = list(polygons)
        for number in chosen.tolist():
            points = _flat(all_of_them[number], _scale(change.after, picture))
            told = {"cause": kind, "detail": CHANGES[kind], "text": polygons.texts[number]}
            marks.append({"kind": kind, **told, "score": None, "points": points})
    return marks


def _scale(page: PageResult, picture: Picture) -> NDArray[np.float64]:
    """From the page to its picture."""
    scale: NDArray[np.float64] = np.array([picture.width, picture.height]) / np.array(page.size)
    return scale


def _flat(outline: NDArray[Any], scale: NDArray[np.float64]) -> list[float]:
    points: list[float] = np.round(outline * scale, 1).ravel().tolist()
    return points
