"""Outlines of blobs in a map: binarise, follow borders and thin out points, as OpenCV does, without its objects."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled

# East, then counterclockwise on the screen.
_STEP_X = np.array([1, 1, 0, -1, -1, -1, 0, 1], dtype=np.int64)
_STEP_Y = np.array([0, -1, -1, -1, 0, 1, 1, 1], dtype=np.int64)
# Marks in a binarised map: text not walked yet, walked, and walked with background to its right.
_TEXT, _WALKED, _RIGHT_END = 1, 2, -2


def blank_marks(height: int, width: int) -> NDArray[np.int8]:
    """Memory for a binarised map in a frame of zeros; rows are padded to whole words of eight pixels."""
    return np.zeros((height + 2, (width + 2 + 7) // 8 * 8), dtype=np.int8)


@compiled(fastmath={"reassoc", "nsz"})
def binarize(prob_map: NDArray[np.float32], thresh: float, marks: NDArray[np.int8]) -> bool:
    """Mark what is above `thresh`; false if there is a NaN. The marks are given: new memory takes six times as long."""
    height, width = prob_map.shape
    limit, total = np.float32(thresh), np.float32(0)
    for y in range(height):
        row, out = prob_map[y], marks[y + 1, 1 : width + 1]
        for x in range(width):
            out[x] = np.int8(1) if row[x] > limit else np.int8(0)
        for x in range(width):
            total += row[x]
    return bool(total == total)


@compiled()
def trace_outlines(marks_hw: NDArray[np.int8]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Outer outlines of all blobs, packed, top to bottom: the points of `cv2.findContours` (CHAIN_APPROX_SIMPLE).

    Holes are followed, to distinguish blobs inside them from their rims, but not kept: a hole is not text.
    The marks are overwritten.
    """
    stride = marks_hw.shape[1]
    marks = marks_hw.reshape(-1)
    words = marks.view(np.uint64)
    ones = np.uint64(0x0101010101010101)
    points = np.empty((1024, 2), dtype=np.int32)
    offsets = np.zeros(256, dtype=np.int64)
    count, used = 0, 0
    before = 0
    for word in range(len(words)):
        # Most of a page is background, and most of the rest the inside of text: eight pixels at a time.
        if (words[word] == 0 and before == 0) or (words[word] == ones and before > 0):
            continue
        for at in range(word * 8, word * 8 + 8):
            here = marks[at]
            outer = before == 0 and here == _TEXT
            if outer or (here == 0 and before > 0):
                start = at if outer else at - 1
                points, end = _walk_border(marks, stride, start, outer, points, used)
                if outer:
                    used, count = end, count + 1
                    if count == len(offsets):
                        offsets = np.concatenate((offsets, np.zeros_like(offsets)))
                    offsets[count] = used
                here = marks[at]
            before = here
    return points[:used], offsets[: count + 1]


@compiled()
def _walk_border(  # type: ignore[no-untyped-def]
    marks, stride, start, outer, points, used
) -> tuple[NDArray[np.int32], int]:
    """Append the corners of one border (Suzuki and Abe 1985); the frame of zeros is subtracted."""
    x, y = start % stride - 1, start // stride - 1
    steps = _STEP_X + _STEP_Y * stride
    heading = first_heading = 4 if outer else 0
    while True:
        heading = (heading - 1) & 7
        last = start + steps[heading]
        if marks[last] != 0 or heading == first_heading:
            break
    if heading == first_heading:
        marks[start] = _RIGHT_END
        points = _with_room(points, used + 1)
        points[used, 0], points[used, 1] = x, y
        return points, used + 1
    here, previous = start, heading ^ 4
    while True:
        came_from = heading
        heading += 1
        while marks[here + steps[heading & 7]] == 0:
            heading += 1
        following = here + steps[heading & 7]
        heading &= 7
        if 0 < heading <= came_from:
            marks[here] = _RIGHT_END
        elif marks[here] == _TEXT:
            marks[here] = _WALKED
        if heading != previous:
            points = _with_room(points, used + 1)
            points[used, 0], points[used, 1] = x, y
            used += 1
            previous = heading
        if following == start and here == last:
            return points, used
        x, y = x + _STEP_X[heading], y + _STEP_Y[heading]
        here, heading = following, (heading + 4) & 7


@compiled()
def _with_room(points, needed):  # type: ignore[no-untyped-def]
    if needed <= len(points):
        return points
    return np.concatenate((points, np.empty_like(points)))


@compiled()
def area_and_length(points: NDArray[Any]) -> tuple[float, float]:
    """Signed area (positive from x to y) and length of a closed outline."""
    area, length = 0.0, 0.0
    ax, ay = points[-1, 0] - points[0, 0], points[-1, 1] - points[0, 1]
    for i in range(len(points)):
        bx, by = points[i, 0] - points[0, 0], points[i, 1] - points[0, 1]
        area += ax * by - bx * ay
        length += np.hypot(bx - ax, by - ay)
        ax, ay = bx, by
    return area / 2, length


@compiled()
def approximate(outline: NDArray[np.int32], tolerance: float) -> NDArray[np.int32]:
    """The outline with fewer points, none further than `tolerance` away: `cv2.approxPolyDP` of a closed curve."""
    count = len(outline)
    square = tolerance * tolerance
    near, far, reach = _far_ends(outline)
    out = np.empty((count, 2), dtype=np.int32)
    if reach <= square:
        out[0] = outline[near]
        return out[:1]
    stack = np.empty((count + 2, 2), dtype=np.int64)
    stack[0] = far, near
    stack[1] = near, far
    top, written = 2, 0
    while top > 0:
        top -= 1
        first, last = stack[top]
        split = _farthest(outline, first, last, square)
        if split < 0:
            out[written] = outline[first]
            written += 1
        else:
            stack[top] = split, last
            stack[top + 1] = first, split
            top += 2
    thinned: NDArray[np.int32] = _without_straight(out[:written], square)
    return thinned


@compiled()
def _far_ends(outline):  # type: ignore[no-untyped-def]
    """Two points far apart, each the farthest from the one before, and their squared distance."""
    near, far, reach = 0, 0, 0
    for _ in range(3):
        near, reach = far, 0
        x, y = outline[near]
        for step in range(1, len(outline)):
            at = (near + step) % len(outline)
            square = (outline[at, 0] - x) ** 2 + (outline[at, 1] - y) ** 2
            if square > reach:
                reach, far = square, at
    return near, far, reach


@compiled()
def _farthest(outline, first, last, square):  # type: ignore[no-untyped-def]
    """The point between two others that is farthest from their segment; -1 if none is beyond the tolerance."""
    ax, ay = float(outline[first, 0]), float(outline[first, 1])
    dx, dy = outline[last, 0] - ax, outline[last, 1] - ay
    length = dx * dx + dy * dy
    # Both sides are multiplied by the segment's squared length: no division.
    farthest, limit = -1, square * length
    at = (first + 1) % len(outline)
    while at != last:
        px, py = outline[at, 0] - ax, outline[at, 1] - ay
        along, across = px * dx + py * dy, py * dx - px * dy
        if along < 0:
            distance = (px * px + py * py) * length
        elif along > length:
            distance = ((px - dx) ** 2 + (py - dy) ** 2) * length
        else:
            distance = across * across
        if distance > limit:
            farthest, limit = at, distance
        at = (at + 1) % len(outline)
    return farthest


@compiled()
def _without_straight(points, square):  # type: ignore[no-untyped-def]
    """Drop points that are almost on the slanted line between their neighbours; in place."""
    count = len(points)
    written, left = 0, count
    before, here = points[count - 1].copy(), points[0].copy()
    i = 0
    while i < count and left > 2:
        after = points[(i + 1) % count].copy()
        dx, dy = float(after[0] - before[0]), float(after[1] - before[1])
        px, py = float(here[0] - before[0]), float(here[1] - before[1])
        across = px * dy - py * dx
        forward = px * (after[0] - here[0]) + py * (after[1] - here[1]) >= 0
        if across * across <= 0.5 * square * (dx * dx + dy * dy) and dx != 0 and dy != 0 and forward:
            left -= 1
            before = after
            i += 1
            here = points[(i + 1) % count].copy()
        else:
            before, here = here, after
        points[written % count] = before
        written += 1
        i += 1
    return points[:left]
