"""Pixels inside a polygon: the mean of a map over what `cv2.fillPoly` would paint, without a mask of the page."""

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled

# The painter's fixed point: 16 fractional bits.
_SHIFT = 16


@compiled()
def mean_inside(prob_map: NDArray[np.float32], polygon: NDArray[np.int32], level: float) -> tuple[float, int]:
    """Mean of the map inside the polygon and on its outline, and how many pixels there are not above a level.

    As far as the polygon is on the map; 0 and 0 if none of it is.
    """
    height, width = prob_map.shape
    left, top, right, bottom = width, height, -1, -1
    for i in range(len(polygon)):
        left, right = min(left, polygon[i, 0]), max(right, polygon[i, 0])
        top, bottom = min(top, polygon[i, 1]), max(bottom, polygon[i, 1])
    left, right, top, bottom = max(left, 0), min(right, width - 1), max(top, 0), min(bottom, height - 1)
    if left > right or top > bottom:
        return 0.0, 0
    mask = np.zeros((bottom - top + 1, right - left + 1), dtype=np.uint8)
    crossings = np.empty((len(mask), len(polygon)), dtype=np.int64)
    counts = np.zeros(len(mask), dtype=np.int64)
    for i in range(len(polygon)):
        j = i - 1 if i else len(polygon) - 1
        ax, ay, bx, by = polygon[j, 0] - left, polygon[j, 1] - top, polygon[i, 0] - left, polygon[i, 1] - top
        _draw_line(mask, ax, ay, bx, by)
        _add_crossings(crossings, counts, ax, ay, bx, by)
    _fill_rows(mask, crossings, counts)
    total, count, faint, limit = 0.0, 0, 0, np.float32(level)
    for y in range(len(mask)):
        row, paint = prob_map[top + y], mask[y]
        for x in range(len(paint)):
            total += float(row[left + x]) * paint[x]
            count += int(paint[x])
            faint += int(paint[x]) * int(row[left + x] <= limit)
    return total / count, faint


@compiled()
def _draw_line(mask, ax, ay, bx, by):  # type: ignore[no-untyped-def]
    """Bresenham's line, from left to right."""
    if bx < ax:
        ax, ay, bx, by = bx, by, ax, ay
    dx, dy, down = bx - ax, abs(by - ay), 1 if by >= ay else -1
    steep = dy > dx
    long, short = (dy, dx) if steep else (dx, dy)
    error = long - 2 * short
    x, y = ax, ay
    for _ in range(long + 1):
        if 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]:
            mask[y, x] = 1
        aside = error < 0
        error += (2 * long if aside else 0) - 2 * short
        if steep:
            y, x = y + down, x + aside
        else:
            x, y = x + 1, y + (down if aside else 0)


@compiled()
def _add_crossings(crossings, counts, ax, ay, bx, by):  # type: ignore[no-untyped-def]
    """The crossings of a side with each row, without its lower end."""
    if by < ay:
        ax, ay, bx, by = bx, by, ax, ay
    if ay == by:
        return
    run = (bx - ax) << _SHIFT
    # Towards zero, as C divides.
    slope = run // (by - ay) if run >= 0 else -(-run // (by - ay))
    first = max(ay, 0)
    at = (ax << _SHIFT) + (first - ay) * slope
    for y in range(first, min(by, len(counts))):
        crossings[y, counts[y]] = at
        counts[y] += 1
        at += slope


@compiled()
def _fill_rows(mask, crossings, counts):  # type: ignore[no-untyped-def]
    for y in range(len(mask)):
        row = crossings[y]
        for i in range(1, counts[y]):
            value, j = row[i], i - 1
            while j >= 0 and row[j] > value:
                row[j + 1] = row[j]
                j -= 1
            row[j + 1] = value
        for i in range(0, counts[y] - 1, 2):
            # Only pixels that are wholly inside; those on the outline are painted by its lines.
            first, last = max(-(-row[i] >> _SHIFT), 0), min(row[i + 1] >> _SHIFT, mask.shape[1] - 1)
            for x in range(first, last + 1):
                mask[y, x] = 1
