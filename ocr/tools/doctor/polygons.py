"""Judge the outlines of all words of a split at once, and repair single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import cv2
import numpy as np
import shapely
from numpy.typing import NDArray

from ocr.formats.annotation import Page, Word
from ocr.formats.lines import shorten
from ocr.formats.validate import points_error
from ocr.geometry.polygons import MIN_AREA
from ocr.tools.doctor.findings import Finding

Points = NDArray[np.float64]
# Annotators click on the border and tools round outwards, so a vertex one pixel beyond the page is not an error.
PAGE_SLACK = 1.0
SAME_PLACE = 0.9
"""IoU from which two labels are one label twice: of four real sets, three pairs are over it, ten from 0.65 to it."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A word whose points are at least three pairs of finite numbers."""

    image: str
    word: Word
    points: Points


def parse_words(split: str, pages: Mapping[str, Page]) -> tuple[list[Outline], list[Finding]]:
    """The outlines of pages, and findings for words with bad points or bad text."""
    outlines: list[Outline] = []
    findings: list[Finding] = []
    for image, page in pages.items():
        for word in page.words:
            problem = points_error(word.points)
            if problem is None:
                outlines.append(Outline(image, word, np.array(word.points, dtype=np.float64).reshape(-1, 2)))
            else:
                detail = f"{problem} (the points are {shorten(word.points)})"
                findings.append(Finding(split, image, "bad-points", detail, word.key))
            text: Any = word.text
            if not isinstance(text, str | None):
                detail = f"the transcription {shorten(text)} is not text"
                findings.append(Finding(split, image, "bad-text", detail, word.key))
    return outlines, findings


def check_outlines(
    split: str,
    outlines: Sequence[Outline],
    page_sizes: Mapping[str, tuple[int, int]],
    size: int,
    min_text_size: float,
) -> list[Finding]:
    """Degenerate, self-intersecting, out of the page, tiny; `page_sizes` are in the frame of the polygons."""
    if not outlines:
        return []
    shapes = _shapes(outlines)
    areas, valid = shapely.area(shapes), shapely.is_valid(shapes)
    pages = np.array([page_sizes.get(outline.image, (np.inf, np.inf)) for outline in outlines], dtype=np.float64)
    outside = _outside(shapes, pages)
    maybe_tiny = _maybe_tiny(shapes, areas, size / pages.max(axis=1), min_text_size)
    findings: list[Finding] = []
    for index in np.flatnonzero((areas < MIN_AREA) | ~valid | outside | maybe_tiny).tolist():
        outline, page = outlines[index], pages[index]
        broken = not valid[index] and repaired(outline.points) is not None
        if areas[index] < MIN_AREA and not broken:
            findings.append(_finding(split, outline, "degenerate-polygon", f"covers {areas[index]:.2f} px²"))
            continue
        if broken:
            # GEOS says Self-intersection[12 34.5].
            reason, _, place = shapely.is_valid_reason(shapes[index]).rstrip("]").partition("[")
            detail = f"{reason.lower()} at ({place.replace(' ', ', ')})"
            findings.append(_finding(split, outline, "self-intersecting", detail))
        if outside[index]:
            findings.append(_finding(split, outline, "out-of-page", _reach(outline.points, page)))
        shorter = shorter_side(outline.points) * size / page.max()
        if maybe_tiny[index] and shorter < min_text_size and not outline.word.ignore:
            detail = f"{shorter:.1f} px high at size {size}, under min_text_size={min_text_size:g}"
            findings.append(_finding(split, outline, "tiny-after-resize", detail))
    return findings


def find_doubles(shapes: NDArray[np.object_]) -> list[tuple[int, int]]:
    """Pairs of (later, earlier) outlines of a page that are in one place; each later one once."""
    areas = shapely.area(shapes)
    sound = shapely.is_valid(shapes) & (areas >= MIN_AREA)
    first, second = shapely.STRtree(shapes).query(shapes, predicate="intersects")
    # Outlines of different areas cannot be one: nearly all pairs of neighbours are left out here.
    alike = np.minimum(areas[first], areas[second]) >= SAME_PLACE * np.maximum(areas[first], areas[second])
    keep = (first > second) & sound[first] & sound[second] & alike
    first, second = first[keep], second[keep]
    shared = shapely.area(shapely.intersection(shapes[first], shapes[second]))
    same = shared >= SAME_PLACE * (areas[first] + areas[second] - shared)
    pairs: dict[int, int] = {}
    for later, earlier in sorted(zip(first[same].tolist(), second[same].tolist(), strict=True)):
        pairs.setdefault(later, earlier)
    return list(pairs.items())


def check_doubles(split: str, outlines: Sequence[Outline]) -> list[Finding]:
    """Labels that lie on another one of their page; `outlines` are in the order of the pages."""
    findings = []
    for _, group in groupby(outlines, key=lambda outline: outline.image):
        words = list(group)
        for later, earlier in find_doubles(_shapes(words)):
            detail = f"lies on word {words[earlier].word.key}"
            findings.append(_finding(split, words[later], "double-label", detail))
    return findings


def _finding(split: str, outline: Outline, kind: str, detail: str) -> Finding:
    points = tuple((float(x), float(y)) for x, y in outline.points)
    return Finding(split, outline.image, kind, detail, outline.word.key, points)


def _shapes(outlines: Sequence[Outline]) -> NDArray[np.object_]:
    vertices = np.concatenate([outline.points for outline in outlines])
    owners = np.repeat(np.arange(len(outlines)), [len(outline.points) for outline in outlines])
    return np.asarray(shapely.polygons(shapely.linearrings(vertices, indices=owners)))


def _outside(shapes: NDArray[np.object_], pages: NDArray[np.float64]) -> NDArray[np.bool_]:
    bounds = shapely.bounds(shapes)
    return np.asarray(((bounds[:, :2] < -PAGE_SLACK) | (bounds[:, 2:] > pages + PAGE_SLACK)).any(axis=1))


def is_out(points: Points, page: tuple[int, int]) -> bool:
    """Whether a vertex is outside the page by more than the slack."""
    return bool(((points < -PAGE_SLACK) | (points > np.asarray(page) + PAGE_SLACK)).any())


def _reach(points: Points, page: NDArray[np.float64]) -> str:
    beyond = np.maximum(-points, points - page).max(axis=1)
    x, y = points[beyond.argmax()]
    return f"reaches ({x:g}, {y:g}), {beyond.max():.0f} px out of a page of {page[0]:.0f} x {page[1]:.0f}"


def _maybe_tiny(
    shapes: NDArray[np.object_], areas: NDArray[np.float64], scales: NDArray[np.float64], min_text_size: float
) -> NDArray[np.bool_]:
    """A rectangle around a polygon is at least area / diagonal high, which spares most words the exact rectangle."""
    bounds = shapely.bounds(shapes)
    diagonals = np.hypot(bounds[:, 2] - bounds[:, 0], bounds[:, 3] - bounds[:, 1])
    return np.asarray((scales > 0) & (areas * scales < min_text_size * diagonals))


def shorter_side(points: Points) -> float:
    """The shorter side of the smallest rectangle around the points, at any angle."""
    return float(min(cv2.minAreaRect(points.astype(np.float32))[1]))


def is_sound(points: Points) -> bool:
    """A simple outline with an area."""
    shape = shapely.Polygon(points)
    return bool(shape.is_valid and shape.area >= MIN_AREA)


def repaired(points: Points) -> Points | None:
    """A simple outline in place of one that crosses itself; None if no area is left."""
    half = len(points) // 2
    orders = [points[[0, 2, 1, 3]]] if len(points) == 4 else []
    if len(points) % 2 == 0:
        # Upper and lower edge both written from left to right: the usual cause, for quads a bow-tie.
        orders.insert(0, np.concatenate([points[:half], points[: half - 1 : -1]]))
    for reordered in orders:
        if is_sound(reordered):
            return reordered
    pieces = shapely.make_valid(shapely.Polygon(points), method="structure", keep_collapsed=False)
    return _largest_piece(pieces, points)


def clipped(points: Points, page: tuple[int, int]) -> Points | None:
    """The largest piece that is on the page; None if there is none."""
    return _largest_piece(shapely.intersection(shapely.Polygon(points), shapely.box(0, 0, *page)), points)


def _largest_piece(shape: Any, like: Points) -> Points | None:
    """The outline of the largest polygon, started and turned as `like` is, so that reading order survives."""
    polygons = [part for part in shapely.get_parts(shapely.get_parts(shape)) if part.geom_type == "Polygon"]
    largest = max(polygons, key=shapely.area, default=None)
    if largest is None or largest.area < MIN_AREA:
        return None
    ring = shapely.get_coordinates(largest.exterior)[:-1]
    if shapely.is_ccw(largest.exterior) != shapely.is_ccw(shapely.LinearRing(like)):
        ring = ring[::-1]
    first = int(np.hypot(*(ring - like[0]).T).argmin())
    return np.asarray(np.roll(ring, -first, axis=0))
