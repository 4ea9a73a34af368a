"""Polygons on whole pixels moved outwards: what clipper's offset with round joins gives, without its objects."""

import math

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled

# How far a chord can fall short of its arc, in pixels: clipper's default.
_ARC_TOLERANCE = 0.25
# How far points are moved, in pixels, so that no two sides touch or overlap.
_IRREGULAR = 1e-4
# Sides on whole pixels often cross at a half: it must round up, as clipper's do, even if its points were moved.
_HALF_UP = 1e-3


@compiled()
def grow(polygon: NDArray[np.int32], distance: float) -> NDArray[np.int32]:
    """The outer outline of all points within `distance` of a polygon; empty if the polygon has no area.

    Holes that close when the sides of a bay meet are filled: one polygon in, one polygon out.
    """
    corners: NDArray[np.int32] = _without_repeats(polygon)
    twice_area = _twice_area(corners)
    if len(corners) < 3 or twice_area == 0 or distance <= 0:
        return corners[:0]
    if twice_area < 0:
        corners = corners[::-1].copy()
    curve, bays = _offset_curve(corners, distance)
    curve = _without_repeats(curve)
    if bays:
        curve = _without_repeats(_outer_face(curve))
    outline: NDArray[np.int32] = _without_collinear(curve)
    return outline


@compiled()
def _twice_area(corners):  # type: ignore[no-untyped-def]
    total = 0
    for i in range(len(corners)):
        j = i - 1 if i else len(corners) - 1
        total += int(corners[j, 0]) * int(corners[i, 1]) - int(corners[i, 0]) * int(corners[j, 1])
    return total


@compiled()
def _without_repeats(points):  # type: ignore[no-untyped-def]
    """The points without those that repeat the one before."""
    out = np.empty_like(points)
    count = 0
    for i in range(len(points)):
        if count == 0 or points[i, 0] != out[count - 1, 0] or points[i, 1] != out[count - 1, 1]:
            out[count, 0], out[count, 1] = points[i, 0], points[i, 1]
            count += 1
    while count > 1 and out[0, 0] == out[count - 1, 0] and out[0, 1] == out[count - 1, 1]:
        count -= 1
    return out[:count]


@compiled()
def _without_collinear(points):  # type: ignore[no-untyped-def]
    """The points without those on the line between their neighbours; in place."""
    count, before = len(points), len(points) + 1
    # What is dropped can leave its neighbours on one line.
    while 2 < count < before:
        before, kept = count, 0
        last_x, last_y = points[count - 1, 0], points[count - 1, 1]
        for i in range(count):
            x, y = points[i, 0], points[i, 1]
            after = i + 1 if i + 1 < before else 0
            if (x - last_x) * (points[after, 1] - y) != (points[after, 0] - x) * (y - last_y):
                points[kept, 0], points[kept, 1] = x, y
                kept += 1
                last_x, last_y = x, y
        count = kept
    return points[:count]


@compiled()
def _round(value: float) -> int:
    # Clipper's rounding: halves away from zero.
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


@compiled()
def _put(points, at, x, y):  # type: ignore[no-untyped-def]
    points[at, 0], points[at, 1] = _round(x), _round(y)


@compiled()
def _offset_curve(corners, distance):  # type: ignore[no-untyped-def]
    """Every side moved out, joined by arcs, and led through the corner itself in a bay; and whether there is a bay.

    The corners are ordered so that the outside is to the right. If sides of a bay cross, so does the curve.
    """
    count = len(corners)
    per_turn = min(math.pi / math.acos(1 - _ARC_TOLERANCE / max(distance, 1)), distance * math.pi)
    sine, cosine = math.sin(2 * math.pi / per_turn), math.cos(2 * math.pi / per_turn)
    normals = _normals(corners)
    out = np.empty((count * (int(per_turn) + 4), 2), dtype=np.int32)
    used, bays = 0, False
    before_x, before_y = normals[count - 1, 0], normals[count - 1, 1]
    for i in range(count):
        x, y, normal_x, normal_y = corners[i, 0], corners[i, 1], normals[i, 0], normals[i, 1]
        turn_sine = before_x * normal_y - normal_x * before_y
        turn_cosine = before_x * normal_x + before_y * normal_y
        steps = 0
        if abs(turn_sine * distance) >= 1 or turn_cosine <= 0:
            if turn_sine < 0:
                bays = True
                _put(out, used, x + before_x * distance, y + before_y * distance)
                _put(out, used + 1, x, y)
                used += 2
            else:
                steps = max(_round(per_turn / (2 * math.pi) * abs(math.atan2(turn_sine, turn_cosine))), 1)
            at_x, at_y = before_x, before_y
            for _ in range(steps):
                _put(out, used, x + at_x * distance, y + at_y * distance)
                used += 1
                at_x, at_y = at_x * cosine - sine * at_y, at_x * sine + at_y * cosine
            _put(out, used, x + normal_x * distance, y + normal_y * distance)
            before_x, before_y = normal_x, normal_y
        else:
            # The two ends are less than a pixel apart. As in clipper, the next turn is then seen from the old side,
            # so that many slight turns in a row add up to one.
            bays |= turn_sine < 0
            _put(out, used, x + before_x * distance, y + before_y * distance)
        used += 1
    return out[:used], bays


@compiled()
def _normals(corners):  # type: ignore[no-untyped-def]
    """The unit normal to the right of each side."""
    normals = np.empty((len(corners), 2))
    for i in range(len(corners)):
        j = i + 1 if i + 1 < len(corners) else 0
        dx, dy = float(corners[j, 0] - corners[i, 0]), float(corners[j, 1] - corners[i, 1])
        length = math.sqrt(dx * dx + dy * dy)
        normals[i, 0], normals[i, 1] = dy / length, -dx / length
    return normals


@compiled()
def _outer_face(curve):  # type: ignore[no-untyped-def]
    """The outline of what a closed curve encloses: walk along it, and turn to the outside at every crossing.

    On whole pixels sides often touch or overlap, and then no turn is right. So each point is first moved by far
    less than a pixel, in a fixed but irregular way: what is left are plain crossings.
    """
    count = len(curve)
    points = _irregular(curve)
    bounds, near = _bounds(points), np.zeros((count + 7) // 8 * 8, dtype=np.uint8)
    start = 0
    for i in range(count):
        start = i if points[i, 1] < points[start, 1] else start
    last, following = (start + count - 1) % count, (start + 1) % count
    x, y = points[start, 0], points[start, 1]
    forward = (x - points[last, 0]) * (points[following, 1] - y) > (points[following, 0] - x) * (y - points[last, 1])
    side = start if forward else last
    out = np.empty((4 * count + 16, 2), dtype=np.int32)
    _put(out, 0, x, y)
    used, crossed = 1, -1
    while used < len(out):
        end = (side + 1) % count if forward else side
        dx, dy = points[end, 0] - x, points[end, 1] - y
        ahead, hit = _first_crossing(points, bounds, near, side, crossed, x, y, dx, dy)
        if hit >= 0:
            x, y = x + ahead * dx, y + ahead * dy
            hit_end = (hit + 1) % count
            # Turn right, whichever way that side runs.
            forward = dx * (points[hit_end, 1] - points[hit, 1]) < dy * (points[hit_end, 0] - points[hit, 0])
            side, crossed = hit, side
        elif end == start:
            return out[:used]
        else:
            x, y = points[end, 0], points[end, 1]
            side = (side + (1 if forward else count - 1)) % count
            crossed = -1
        _put(out, used, x + _HALF_UP, y + _HALF_UP)
        used += 1
    # A walk that fails was not seen in 40,000 outlines; the complete curve still covers the text.
    return curve


@compiled()
def _irregular(curve):  # type: ignore[no-untyped-def]
    points = np.empty((len(curve), 2))
    state = 12345
    for i in range(len(curve)):
        for axis in range(2):
            state = (state * 1664525 + 1013904223) % 2**32
            points[i, axis] = curve[i, axis] + (state / 2**32 - 0.5) * _IRREGULAR
    return points


@compiled()
def _bounds(points):  # type: ignore[no-untyped-def]
    """Smallest and largest x, smallest and largest y of each side, a row each."""
    count = len(points)
    bounds = np.empty((4, count), dtype=np.float32)
    for i in range(count):
        j = i + 1 if i + 1 < count else 0
        bounds[0, i], bounds[1, i] = min(points[i, 0], points[j, 0]), max(points[i, 0], points[j, 0])
        bounds[2, i], bounds[3, i] = min(points[i, 1], points[j, 1]), max(points[i, 1], points[j, 1])
    return bounds


@compiled()
def _first_crossing(points, bounds, near, side, crossed, x, y, dx, dy):  # type: ignore[no-untyped-def]
    """The nearest crossing of the way from (x, y) with a side: how far along, and which side; -1 if there is none."""
    count = len(points)
    nearest, hit = 1.0, -1
    _mark_near(bounds, near, min(x, x + dx), max(x, x + dx), min(y, y + dy), max(y, y + dy))
    words = near.view(np.uint64)
    for word in range(len(words)):
        if words[word] == 0:
            continue
        for i in range(word * 8, min(word * 8 + 8, count)):
            j = i + 1 if i + 1 < count else 0
            # A side meets itself, its neighbours and the previous side at its ends.
            if not near[i] or i in (side, crossed) or j == side or i == side + 1 or i == side + 1 - count:
                continue
            from_x, from_y = points[i, 0] - x, points[i, 1] - y
            side_x, side_y = points[j, 0] - points[i, 0], points[j, 1] - points[i, 1]
            across = dx * side_y - dy * side_x
            ahead = (from_x * side_y - from_y * side_x) / across
            along = (from_x * dy - from_y * dx) / across
            if 0 < ahead < nearest and 0 <= along <= 1:
                nearest, hit = ahead, i
    return nearest, hit


@compiled()
def _mark_near(bounds, near, left, right, top, bottom):  # type: ignore[no-untyped-def]
    x_low, x_high, y_low, y_high = bounds[0], bounds[1], bounds[2], bounds[3]
    # Coordinates are rounded to float32 here: a hundredth of a pixel more is enough on maps of 65,536 pixels.
    low_x, high_x = np.float32(left - 0.01), np.float32(right + 0.01)
    low_y, high_y = np.float32(top - 0.01), np.float32(bottom + 0.01)
    # No branch in this loop: it runs eight sides at a time.
    for i in range(bounds.shape[1]):
        near[i] = (x_low[i] <= high_x) & (x_high[i] >= low_x) & (y_low[i] <= high_y) & (y_high[i] >= low_y)
