"""The smallest rectangle round points, at any angle: what `cv2.minAreaRect` gives, without its objects."""

import math

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled

_SAME_AREA = 1e-9


@compiled()
def smallest_rectangle(points: NDArray[np.int32]) -> tuple[NDArray[np.float64], float]:
    """Corners (4, 2) of the rectangle of least area, from the top left clockwise, and its shorter side.

    Of equal areas, as small round blobs have them, the more upright one is taken.
    """
    hull = _convex_hull(points)
    best = np.inf
    best_x, best_y = 0.0, 0.0
    low_u = high_u = low_v = high_v = 0.0
    for i in range(len(hull)):
        j = i + 1 if i + 1 < len(hull) else 0
        dx, dy = float(hull[j, 0] - hull[i, 0]), float(hull[j, 1] - hull[i, 1])
        length = math.sqrt(dx * dx + dy * dy)
        if length == 0:
            continue
        dx, dy = dx / length, dy / length
        u_first, u_last, v_first, v_last = _extents(hull, dx, dy)
        area = (u_last - u_first) * (v_last - v_first)
        upright = max(abs(dx), abs(dy)) > max(abs(best_x), abs(best_y))
        if area < best * (1 - _SAME_AREA) or (upright and area <= best * (1 + _SAME_AREA)):
            best, best_x, best_y = area, dx, dy
            low_u, high_u, low_v, high_v = u_first, u_last, v_first, v_last
    if best == np.inf:
        best_x = 1.0  # All points are one.
    corners = np.empty((4, 2))
    x, y = float(points[0, 0]), float(points[0, 1])
    for corner in range(4):
        u = low_u if corner in (0, 3) else high_u
        v = low_v if corner < 2 else high_v
        corners[corner, 0], corners[corner, 1] = x + u * best_x - v * best_y, y + u * best_y + v * best_x
    return _from_top_left(corners), min(high_u - low_u, high_v - low_v)


@compiled()
def _extents(hull, dx, dy):  # type: ignore[no-untyped-def]
    """Smallest and largest coordinate along a direction and across it."""
    u_first, u_last, v_first, v_last = np.inf, -np.inf, np.inf, -np.inf
    for i in range(len(hull)):
        u, v = hull[i, 0] * dx + hull[i, 1] * dy, hull[i, 1] * dx - hull[i, 0] * dy
        u_first, u_last, v_first, v_last = min(u_first, u), max(u_last, u), min(v_first, v), max(v_last, v)
    return u_first, u_last, v_first, v_last


@compiled()
def _convex_hull(points):  # type: ignore[no-untyped-def]
    """Corners of the convex hull, seen from the first point, by wrapping: outlines have few of them."""
    count = len(points)
    start = 0
    for i in range(1, count):
        if points[i, 0] < points[start, 0] or (points[i, 0] == points[start, 0] and points[i, 1] < points[start, 1]):
            start = i
    hull = np.empty((count, 2), dtype=np.int64)
    used, here = 0, start
    while used < count:
        x, y = int(points[here, 0]), int(points[here, 1])
        hull[used, 0], hull[used, 1] = x - points[0, 0], y - points[0, 1]
        used += 1
        following, ahead_x, ahead_y = here, 0, 0
        for i in range(count):
            dx, dy = points[i, 0] - x, points[i, 1] - y
            turn = ahead_x * dy - ahead_y * dx
            farther = turn == 0 and dx * dx + dy * dy > ahead_x * ahead_x + ahead_y * ahead_y
            if turn < 0 or farther:
                following, ahead_x, ahead_y = i, dx, dy
        here = following
        if points[here, 0] == points[start, 0] and points[here, 1] == points[start, 1]:
            break
    return hull[:used]


@compiled()
def _from_top_left(corners):  # type: ignore[no-untyped-def]
    """The corners, which run clockwise on the screen, beginning with the one nearest to the top left."""
    first = 0
    for i in range(1, 4):
        if corners[i, 0] + corners[i, 1] < corners[first, 0] + corners[first, 1]:
            first = i
    out = np.empty_like(corners)
    for i in range(4):
        out[i, 0], out[i, 1] = corners[(first + i) % 4, 0], corners[(first + i) % 4, 1]
    return out
