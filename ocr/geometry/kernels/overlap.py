"""Overlap areas of many polygons: pairs are filtered by their bounding boxes, then measured by one compiled sweep.

A ring is a closed outline. What is inside follows the even-odd rule, so concave and self-crossing rings need no
special case: the sweep cuts the plane into horizontal slabs at every vertex and every crossing, and within a slab
everything is a trapezoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ocr.geometry.kernels.compiled import compiled
from ocr.geometry.polygons import Polygons

Shapes = Polygons | NDArray[Any] | Sequence[ArrayLike]


@dataclass(frozen=True, slots=True, eq=False)
class Rings:
    """Outline r is `vertices[starts[r]:starts[r + 1]]`, in float32 if it came so, else in float64."""

    vertices: NDArray[Any]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Vertices of each ring."""
        return np.diff(self.starts)

    @property
    def bounds(self) -> NDArray[np.float64]:
        """(R, 4): smallest x, smallest y, largest x, largest y."""
        if not len(self):
            return np.zeros((0, 4))
        low = np.minimum.reduceat(self.vertices, self.starts[:-1], axis=0)
        high = np.maximum.reduceat(self.vertices, self.starts[:-1], axis=0)
        return np.concatenate([low, high], axis=1, dtype=np.float64)

    def in_float64(self) -> Rings:
        """The same rings as the kernels take them."""
        return Rings(self.vertices.astype(np.float64, copy=False), self.starts)

    def cut_to_whole_pixels(self) -> Rings:
        """The same rings with fractions dropped."""
        return Rings(np.trunc(self.vertices).astype(np.float64, copy=False), self.starts)


def read_rings(shapes: Shapes, name: str) -> Rings:
    """Rings from packed polygons, an (N, 2n) or (N, n, 2) array, or a list of (n, 2), (1, n, 2) or flat points.

    >>> len(read_rings([[0, 0, 4, 0, 4, 2, 0, 2]], "boxes"))
    1
    """
    if isinstance(shapes, Polygons):
        return _checked(shapes.vertices, shapes.offsets.astype(np.int64), name)
    if isinstance(shapes, np.ndarray) and shapes.ndim > 1 and len(shapes):
        _check_shape(shapes[0], name, 0)
        starts = np.arange(len(shapes) + 1, dtype=np.int64) * (shapes[0].size // 2)
        vertices = shapes.reshape(-1, 2)
    else:
        rows = [np.asarray(row) for row in shapes]
        for index, row in enumerate(rows):
            _check_shape(row, name, index)
        starts = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([row.size // 2 for row in rows], out=starts[1:])
        vertices = np.concatenate([row.ravel() for row in rows]).reshape(-1, 2) if rows else np.zeros((0, 2))
    return _checked(vertices if vertices.dtype == np.float32 else vertices.astype(np.float64), starts, name)


def _check_shape(row: NDArray[Any], name: str, index: int) -> None:
    if row.size < 6 or row.size % 2 or (row.ndim > 1 and row.shape[-1] != 2):
        raise ValueError(
            f"{name}[{index}] has shape {row.shape}, expected a polygon. "
            "Pass x1, y1, x2, y2, ... or (n, 2) points, three points or more"
        )


def _checked(vertices: NDArray[Any], starts: NDArray[np.int64], name: str) -> Rings:
    finite = np.isfinite(vertices).all(axis=1)
    if not finite.all():
        vertex = int(np.argmin(finite))
        index = int(np.searchsorted(starts, vertex, side="right")) - 1
        raise ValueError(f"{name}[{index}] has the point {vertices[vertex].tolist()}. Coordinates must be finite")
    return Rings(vertices, starts)


@compiled()
def touching_pairs(bounds_a: NDArray[np.float64], bounds_b: NDArray[np.float64]) -> NDArray[np.int64]:
    """(K, 2) indices of the bounding boxes that overlap or touch, ordered by the first, then the second."""
    pairs = np.empty((max(16, 4 * (len(bounds_a) + len(bounds_b))), 2), np.int64)
    count = 0
    for i in range(len(bounds_a)):
        left, top, right, bottom = bounds_a[i]
        for j in range(len(bounds_b)):
            if bounds_b[j, 0] > right or bounds_b[j, 2] < left or bounds_b[j, 1] > bottom or bounds_b[j, 3] < top:
                continue
            if count == len(pairs):
                pairs = np.concatenate((pairs, np.empty_like(pairs)))
            pairs[count] = i, j
            count += 1
    return pairs[:count].copy()


@compiled()
def ring_areas(vertices: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Area of each ring; a self-crossing one counts by the even-odd rule, as its overlaps do."""
    areas = np.empty(len(starts) - 1)
    for r in range(len(areas)):
        edges = np.empty((starts[r + 1] - starts[r], 4))
        owners = np.zeros(len(edges), np.int64)
        count = _add_edges(vertices, starts[r], starts[r + 1], 0, edges, owners, 0)
        areas[r] = _region_area(edges[:count], owners[:count], 1, 1)
    return areas


@compiled()
def shared_areas(
    a: NDArray[np.float64],
    a_starts: NDArray[np.int64],
    b: NDArray[np.float64],
    b_starts: NDArray[np.int64],
    pairs: NDArray[np.int64],
    holes: NDArray[np.int64],
    hole_starts: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Area that ring i of `a` and ring j of `b` share, for each pair (i, j).

    Rings `holes[hole_starts[i]:hole_starts[i + 1]]` of `a` are cut out of ring i first.
    """
    areas = np.empty(len(pairs))
    for k in range(len(pairs)):
        i, j = pairs[k]
        ring_holes = holes[hole_starts[i] : hole_starts[i + 1]]
        size = a_starts[i + 1] - a_starts[i] + b_starts[j + 1] - b_starts[j]
        for hole in ring_holes:
            size += a_starts[hole + 1] - a_starts[hole]
        edges, owners = np.empty((size, 4)), np.empty(size, np.int64)
        count = _add_edges(a, a_starts[i], a_starts[i + 1], 0, edges, owners, 0)
        count = _add_edges(b, b_starts[j], b_starts[j + 1], 1, edges, owners, count)
        for h in range(len(ring_holes)):
            hole = ring_holes[h]
            count = _add_edges(a, a_starts[hole], a_starts[hole + 1], 2 + h, edges, owners, count)
        areas[k] = _region_area(edges[:count], owners[:count], 2, 2 + len(ring_holes))
    return areas


@compiled()
def _add_edges(vertices, first, last, owner, edges, owners, count):  # type: ignore[no-untyped-def]
    """Append a ring's edges as (x, y, x, y) with the smaller y first; level edges bound no area in a slab."""
    for i in range(first, last):
        j = i + 1 if i + 1 < last else first
        if vertices[i, 1] == vertices[j, 1]:
            continue
        low, high = (i, j) if vertices[i, 1] < vertices[j, 1] else (j, i)
        edges[count, 0], edges[count, 1] = vertices[low, 0], vertices[low, 1]
        edges[count, 2], edges[count, 3] = vertices[high, 0], vertices[high, 1]
        owners[count] = owner
        count += 1
    return count


@compiled()
def _region_area(edges, owners, inner, rings):  # type: ignore[no-untyped-def]
    """Area inside all of the first `inner` rings and outside all others."""
    low, high = -np.inf, np.inf
    for ring in range(inner):
        ring_low, ring_high = np.inf, -np.inf
        for e in range(len(edges)):
            if owners[e] == ring:
                ring_low, ring_high = min(ring_low, edges[e, 1]), max(ring_high, edges[e, 3])
        low, high = max(low, ring_low), min(high, ring_high)
    area = 0.0
    if low >= high:
        return area
    levels = _slab_levels(edges, low, high)
    order, crossings = np.empty(len(edges), np.int64), np.empty(len(edges))
    inside = np.empty(rings, np.bool_)
    for k in range(len(levels) - 1):
        height = levels[k + 1] - levels[k]
        if height > 0:
            middle = (levels[k] + levels[k + 1]) / 2
            count = _sort_crossings(edges, middle, order, crossings)
            area += height * _inner_width(order[:count], crossings, owners, inner, inside)
    return area


@compiled()
def _slab_levels(edges, low, high):  # type: ignore[no-untyped-def]
    """Sorted y of all vertices and crossings between `low` and `high`; no two edges cross between two of them."""
    size = len(edges)
    levels = np.empty(2 + size * 2 + size * (size - 1) // 2)
    levels[0], levels[1] = low, high
    count = 2
    for e in range(size):
        for y in (edges[e, 1], edges[e, 3]):
            if low < y < high:
                levels[count] = y
                count += 1
        for f in range(e):
            start, end = max(low, edges[e, 1], edges[f, 1]), min(high, edges[e, 3], edges[f, 3])
            if start >= end:
                continue
            gap_start = _x_at(edges, e, start) - _x_at(edges, f, start)
            gap_end = _x_at(edges, e, end) - _x_at(edges, f, end)
            if gap_start * gap_end < 0:
                levels[count] = start + (end - start) * gap_start / (gap_start - gap_end)
                count += 1
    return np.sort(levels[:count])


@compiled(inline="always")
def _x_at(edges, e, y):  # type: ignore[no-untyped-def]
    share = (y - edges[e, 1]) / (edges[e, 3] - edges[e, 1])
    return edges[e, 0] + share * (edges[e, 2] - edges[e, 0])


@compiled()
def _sort_crossings(edges, y, order, crossings):  # type: ignore[no-untyped-def]
    """Edges that cross the level y, from left to right."""
    count = 0
    for e in range(len(edges)):
        if not edges[e, 1] <= y < edges[e, 3]:
            continue
        x = _x_at(edges, e, y)
        place = count
        while place > 0 and crossings[place - 1] > x:
            crossings[place], order[place] = crossings[place - 1], order[place - 1]
            place -= 1
        crossings[place], order[place] = x, e
        count += 1
    return count


@compiled()
def _inner_width(order, crossings, owners, inner, inside):  # type: ignore[no-untyped-def]
    """Length of the level inside the first `inner` rings and outside all others."""
    inside[:] = False
    width, inner_in, outer_in = 0.0, 0, 0
    for k in range(len(order)):
        if inner_in == inner and outer_in == 0:
            width += crossings[k] - crossings[k - 1]
        ring = owners[order[k]]
        step = -1 if inside[ring] else 1
        inside[ring] = not inside[ring]
        if ring < inner:
            inner_in += step
        else:
            outer_in += step
    return width


@compiled()
def covered_points(
    rings: NDArray[np.float64],
    ring_starts: NDArray[np.int64],
    points: NDArray[np.float64],
    point_starts: NDArray[np.int64],
    pairs: NDArray[np.int64],
    hit_starts: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which points of group i are in ring j, for each pair (i, j): `hits[hit_starts[k]:hit_starts[k + 1]]`.

    A point on a left or upper border is inside, on a right or lower border outside.
    """
    hits = np.zeros(hit_starts[-1], np.bool_)
    for k in range(len(pairs)):
        i, j = pairs[k]
        for p in range(point_starts[i], point_starts[i + 1]):
            x, y = points[p]
            hits[hit_starts[k] + p - point_starts[i]] = _is_inside(rings, ring_starts[j], ring_starts[j + 1], x, y)
    return hits


@compiled()
def _is_inside(vertices, first, last, x, y):  # type: ignore[no-untyped-def]
    inside, before = False, last - 1
    for v in range(first, last):
        vx, vy, wx, wy = vertices[v, 0], vertices[v, 1], vertices[before, 0], vertices[before, 1]
        if (vy <= y < wy or wy <= y < vy) and x < (wx - vx) * (y - vy) / (wy - vy) + vx:
            inside = not inside
        before = v
    return inside
