"""Pictures of findings: a piece of the page as JPEG, and the outlines on top of it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from ocr.formats.validate import points_error
from ocr.geometry.orientation import apply_orientation, orientation_matrix
from ocr.pipeline.decode import DAMAGE
from ocr.tools.doctor.findings import Finding, Split
from ocr.tools.doctor.fix import fix_points
from ocr.tools.doctor.images import ImageFacts, read_upright
from ocr.tools.doctor.polygons import Points

PICTURE_SIDE = 480
# Word pictures are this wide for their height, so that they line up in rows.
WORD_ASPECT = 1.5
JPEG_QUALITY = 78
# Proposals of --fix are drawn on top, so that they are visible.
LAYERS = ("word", "bad", "good")
# There is nothing to see, opening the file is what went wrong, or it is not safe.
NOT_DRAWN = frozenset({
    "annotation-error", "missing-folder", "missing-image", "empty-file", "unreadable-image", "too-many-pixels",
    "bad-points", "bad-text", "unreferenced-file", "annotation-note",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle of the upright page, which can reach beyond it."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Picture:
    """A finding as the template draws it, in pixels of the upright page."""

    kind: str
    """page or word: whether all of the page is shown."""
    name: str
    view: str
    rectangle: tuple[float, float, float, float]
    """Left, top, width and height of what the JPEG shows."""
    jpeg: str
    outlines: Sequence[tuple[str, str]]
    """(CSS class, points)."""
    corners: Sequence[tuple[float, float]]
    """Of a wrong word, each with a dot."""
    radius: float


def draw_finding(finding: Finding, split: Split) -> Picture | None:
    """The picture of a finding, or None if there is nothing to show."""
    facts = split.images.get(finding.image)
    if facts is None or NOT_DRAWN & {finding.kind, facts.problem} or facts.raw_size == (0, 0):
        return None
    outlines = _outlines(finding, split, facts)
    page = facts.size_in("upright")
    window = _window_around(outlines[-1][1], page) if finding.points else Window(0, 0, *page)
    side = round(max(page) * min(1.0, PICTURE_SIDE / max(window.width, window.height)))
    pixels = _read_pixels(facts, side)
    return None if pixels is None else _picture(finding.place, window, page, pixels, outlines)


def _outlines(finding: Finding, split: Split, facts: ImageFacts) -> list[tuple[str, Points]]:
    """(CSS class, upright points) of everything to draw, the offender last."""
    verdict = split.frames.get(finding.image)
    turn = orientation_matrix(facts.orientation, *facts.raw_size)
    as_is, turned = _same, partial(_moved, turn)
    page = split.annotations.pages.get(finding.image) if split.annotations else None
    words = [word for word in page.words if points_error(word.points) is None] if page else []
    shapes = [np.array(word.points, dtype=np.float64).reshape(-1, 2) for word in words]
    raw = verdict is not None and verdict.best == "raw"
    right, wrong = (turned, as_is) if raw else (as_is, turned)
    if finding.kind in ("other-frame", "ambiguous-frame"):
        return [("bad", wrong(points)) for points in shapes] + [("good", right(points)) for points in shapes]
    if finding.matrix is not None:
        moved = partial(_moved, np.array(finding.matrix))
        return [("bad", right(points)) for points in shapes] + [("good", right(moved(points))) for points in shapes]
    keys = [word.key for word in words]
    outlines = [("word", right(points)) for key, points in zip(keys, shapes, strict=True) if key != finding.word]
    if not finding.points:
        return outlines
    offender = right(np.array(finding.points))
    if finding.score is not None:
        proposed = [("good", right(np.array(outline))) for outline in finding.proposal or ()]
        return [*outlines, *proposed, ("bad", offender)]
    fixed, taken = fix_points(offender, facts.size_in("upright"))
    repair = [("good", fixed)] if fixed is not None and taken else []
    return [*outlines, *repair, ("bad", offender)]


def _same(points: Points) -> Points:
    return points


def _moved(matrix: NDArray[np.float64], points: Points) -> Points:
    return points @ matrix[:2, :2].T + matrix[:2, 2]


def _window_around(points: Points, page: tuple[int, int]) -> Window:
    """The word with room around it; a word that is far out of the page is shown where it leaves."""
    margin = 0.15 * max(page)
    inside = points.clip(-margin, np.asarray(page) + margin)
    (left, top), (right, bottom) = inside.min(axis=0), inside.max(axis=0)
    width = max(1.5 * (right - left), 2.5 * WORD_ASPECT * (bottom - top), 0.12 * max(page), 24)
    height = width / WORD_ASPECT
    return Window((left + right - width) / 2, (top + bottom - height) / 2, width, height)


def _read_pixels(facts: ImageFacts, longest_side: int) -> NDArray[np.uint8] | None:
    try:
        return read_upright(facts, longest_side)[0]
    except DAMAGE:
        pass
    try:
        # What is left of a truncated JPEG shows where it broke off.
        scale = longest_side / max(facts.raw_size)
        width, height = (round(side * scale) for side in facts.raw_size)
        data = facts.path.read_bytes()
        raw = simplejpeg.decode_jpeg(data, "RGB", min_width=width, min_height=height, min_factor=1, strict=False)
        return apply_orientation(raw, facts.orientation)
    except ValueError:
        return None


def _picture(
    name: str,
    window: Window,
    page: tuple[int, int],
    pixels: NDArray[np.uint8],
    outlines: Sequence[tuple[str, Points]],
) -> Picture:
    image, rectangle = _cut(window, page, pixels)
    is_page = (window.width, window.height) == page
    near = [(style, points) for style, points in outlines if _touches(points, window)]
    near.sort(key=lambda outline: LAYERS.index(outline[0]))
    bad = [points for style, points in near if style == "bad" and not is_page]
    return Picture(
        "page" if is_page else "word",
        name,
        f"{window.left:.1f} {window.top:.1f} {window.width:.1f} {window.height:.1f}",
        rectangle,
        jpeg=base64.b64encode(simplejpeg.encode_jpeg(image, quality=JPEG_QUALITY)).decode(),
        outlines=[(style, " ".join(f"{x:.1f},{y:.1f}" for x, y in points)) for style, points in near],
        corners=[(round(x, 1), round(y, 1)) for points in bad for x, y in points.tolist()],
        radius=round(window.width / 110, 1),
    )


def _touches(points: Points, window: Window) -> bool:
    low, high = points.min(axis=0), points.max(axis=0)
    corner = np.array([window.left, window.top])
    return bool((high >= corner).all() and (low <= corner + np.array([window.width, window.height])).all())


def _cut(
    window: Window, page: tuple[int, int], pixels: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], tuple[float, float, float, float]]:
    """The pixels inside the window, and the rectangle of the page they show."""
    height, width = pixels.shape[:2]
    scale = np.array([width / page[0], height / page[1]])
    low = np.floor(np.array([window.left, window.top]) * scale)
    high = np.ceil(np.array([window.left + window.width, window.top + window.height]) * scale)
    (x0, y0), (x1, y1) = (low.clip(0, (width - 1, height - 1)).astype(int), high.clip(1, (width, height)).astype(int))
    cut = pixels[y0:y1, x0:x1]
    shrink = PICTURE_SIDE / max(cut.shape[:2])
    if shrink < 1:
        cut = np.asarray(cv2.resize(cut, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    left, top, right, bottom = x0 / scale[0], y0 / scale[1], x1 / scale[0], y1 / scale[1]
    rectangle = (round(left, 1), round(top, 1), round(right - left, 1), round(bottom - top, 1))
    return np.ascontiguousarray(cut), rectangle
