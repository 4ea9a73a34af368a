"""Outlines that cannot be drawn as they are, because they cross themselves or have too many vertices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
import pyclipper
from numpy.typing import NDArray

from ocr.geometry.kernels.crossings import self_crossings
from ocr.geometry.polygons import Polygons

Outline = NDArray[np.float32]

# Text has 4 to 100 vertices, a traced contour some hundreds. Work on an outline grows with their square: 1,000 take
# up to 30 ms, 20,000 took over a minute.
MAX_VERTICES = 1000
# A slip of the pen at the corner of a curved word cancels less of it than its border is wide; a bow-tie up to all.
MAX_CANCELLED = 0.05
# Clipper works on integers: this many per pixel.
_STEPS = 256


class Mended(NamedTuple):
    """Polygons that can be drawn, and how many of them had to be changed."""

    polygons: Polygons
    crossed: int
    """Outlines whose loops cancelled each other, now ignored convex hulls."""
    simplified: int
    """Outlines of more than MAX_VERTICES vertices, now every k-th of them."""


def mend(polygons: Polygons) -> Mended:
    """Thin out long outlines, then turn crossed ones into ignored hulls.

    Loops of opposite direction cancel in D = A (1 - r^2) / L, so a crossed word would lose its area, and the text under
    it would be learnt as background.

    >>> bow_tie, box = [[0, 0], [40, 20], [40, 0], [0, 20]], [[0, 30], [40, 30], [40, 50], [0, 50]]
    >>> mended = mend(Polygons.pack([bow_tie, box]))
    >>> mended.crossed, mended.polygons.areas.tolist(), mended.polygons.ignore.tolist()
    (1, [800.0, 800.0], [True, False])
    """
    simplified = np.diff(polygons.offsets) > MAX_VERTICES
    if simplified.any():
        polygons = _replaced(polygons, simplified, _thinned, polygons.ignore)
    counts = self_crossings(polygons.vertices.astype(np.float64), polygons.offsets.astype(np.int64))
    crossed = np.zeros(len(polygons), dtype=np.bool_)
    for p in np.flatnonzero(counts.any(axis=1)).tolist():
        outline = polygons.vertices[polygons.offsets[p] : polygons.offsets[p + 1]]
        # Resolving a scribble takes Clipper seconds, and it is a scribble whatever its loops amount to.
        crossed[p] = counts[p, 0] > len(outline) or _cancels(outline)
    if crossed.any():
        polygons = _replaced(polygons, crossed, _hull, polygons.ignore | crossed)
    return Mended(polygons, int(crossed.sum()), int(simplified.sum()))


def _cancels(outline: Outline) -> bool:
    """Whether the area by the shoelace formula, where loops cancel, is not the area that the outline covers."""
    path = np.rint(outline.astype(np.float64) * _STEPS).astype(np.int64).tolist()
    area = abs(pyclipper.Area(path))
    covered = abs(sum(map(pyclipper.Area, pyclipper.SimplifyPolygon(path, pyclipper.PFT_EVENODD))))
    return bool(abs(covered - area) > MAX_CANCELLED * max(covered, area))


def _thinned(outline: Outline) -> Outline:
    return outline[np.linspace(0, len(outline), MAX_VERTICES, endpoint=False).astype(np.int64)]


def _hull(outline: Outline) -> Outline:
    hull = np.asarray(cv2.convexHull(outline), dtype=np.float32).reshape(-1, 2)
    # The hull of points on one line has two corners: without an area it is dropped, and counted, like any such word.
    return hull if len(hull) >= 3 else outline


def _replaced(
    polygons: Polygons, which: NDArray[np.bool_], change: Callable[[Outline], Outline], ignore: NDArray[np.bool_]
) -> Polygons:
    outlines = [change(outline) if changed else outline for outline, changed in zip(polygons, which, strict=True)]
    return Polygons.pack(outlines, ignore, polygons.texts, polygons.units)
