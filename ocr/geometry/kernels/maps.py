"""The compiled loops over pixels. Everything else about maps is in `ocr/pipeline/targets.py`."""

import math

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled

# Pixels; no page reaches this far, and integers reach further.
_FAR = float(1 << 40)


@compiled(fastmath={"nsz", "arcp", "contract", "reassoc"})
def raise_border_band(
    vertices: NDArray[np.float32],
    offsets: NDArray[np.int32],
    distances: NDArray[np.float64],
    low: float,
    high: float,
    thresh_map: NDArray[np.float32],
) -> None:
    """Raise the map to `low + (high - low) * (1 - d / D)` within D of each polygon's outline, D = `distances[p]`.

    d is the classic distance of a pixel to an edge: along the normal, except that if the pixel sees the edge
    under less than 90 degrees it is the distance to the nearer end. The maximum over edges of 1 - d / D is the
    value at the nearest edge, so edges are drawn one by one, each over the few rows and columns its band covers.
    Polygons with D <= 0 are left out.
    """
    height, width = thresh_map.shape
    for p in range(len(offsets) - 1):
        reach = distances[p]
        if not 0 < reach < np.inf:
            continue
        first, last = offsets[p], offsets[p + 1]
        for i in range(first, last):
            j = i + 1 if i + 1 < last else first
            ax, ay = float(vertices[i, 0]), float(vertices[i, 1])
            bx, by = float(vertices[j, 0]), float(vertices[j, 1])
            dx, dy = bx - ax, by - ay
            square_length = dx * dx + dy * dy
            if square_length == 0:
                continue
            length = math.sqrt(square_length)
            y_first = math.ceil(_within(min(ay, by) - reach, 0, height))
            y_last = math.floor(_within(max(ay, by) + reach, -1, height - 1))
            for y in range(y_first, y_last + 1):
                # The band of a slanted edge is a strip: only its stretch of this row is visited.
                x_low, x_high = min(ax, bx) - reach, max(ax, bx) + reach
                if dy != 0:
                    middle = ax + (y - ay) * dx / dy
                    half = reach * length / abs(dy)
                    x_low, x_high = max(x_low, middle - half), min(x_high, middle + half)
                x_first, x_last = math.ceil(_within(x_low, 0, width)), math.floor(_within(x_high, -1, width - 1))
                _raise_row(
                    thresh_map[y], x_first, x_last + 1, ax, bx, y - ay, y - by, dx, dy, square_length,
                    reach, low, high,
                )  # fmt: skip


@compiled()
def _within(value: float, low: int, high: int) -> float:
    """The value, from `low` to `high`. A float beyond 2^63 has no integer: converted, it may be any address."""
    if not value > low:  # NaN too.
        return float(low)
    return value if value < high else float(high)


@compiled(fastmath={"nsz", "arcp", "contract", "reassoc"}, inline="always")
def _raise_row(  # type: ignore[no-untyped-def]
    map_row, start, stop, ax, bx, from_ay, from_by, dx, dy, square_length, reach, low, high
) -> None:
    zero = np.float32(0)
    peak, slope = np.float32(high), np.float32((high - low) / reach)
    inverse_length = np.float32(1 / math.sqrt(square_length))
    a, b = np.float32(ax), np.float32(bx)
    ya, yb = np.float32(from_ay), np.float32(from_by)
    edge_x, edge_y = np.float32(dx), np.float32(dy)
    # No branch and no second array in this loop: it runs eight pixels at a time.
    for x in range(start, stop):
        xa, xb = np.float32(x) - a, np.float32(x) - b
        to_a, to_b = xa * xa + ya * ya, xb * xb + yb * yb
        normal = (xa * edge_y - ya * edge_x) * inverse_length
        sharp = xa * xb + ya * yb > zero
        square = min(to_a, to_b) if sharp else normal * normal
        map_row[x] = max(map_row[x], peak - np.sqrt(square) * slope)


@compiled()
def normalize_to_chw(
    image_hwc: NDArray[np.uint8],
    mean: NDArray[np.float32],
    factor: NDArray[np.float32],
    out_chw: NDArray[np.float32],
) -> None:
    """`out[c] = (image[..., c] - mean[c]) * factor[c]`: normalise and reorder the channels in one pass."""
    height, width, channels = image_hwc.shape
    for y in range(height):
        for c in range(channels):
            m, f = mean[c], factor[c]
            for x in range(width):
                out_chw[c, y, x] = (np.float32(image_hwc[y, x, c]) - m) * f


@compiled()
def normalize_interleaved_to_chw(
    image_hwc: NDArray[np.uint8],
    mean: NDArray[np.float32],
    factor: NDArray[np.float32],
    out_chw: NDArray[np.float32],
) -> None:
    """The same for a page in one piece, six times as fast: the channels of a row are taken apart first."""
    height, width, _ = image_hwc.shape
    channels = np.empty((3, width), dtype=np.uint8)
    first, second, third = channels
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for y in range(height):
        row = image_hwc[y].reshape(-1)
        # Unsigned: the compiler then knows that no index is negative, and takes 16 pixels at a time.
        for x in range(np.uint64(width)):
            first[x], second[x], third[x] = row[three * x], row[three * x + one], row[three * x + two]
        for c in range(3):
            source, target, m, f = channels[c], out_chw[c, y], mean[c], factor[c]
            for x in range(width):
                target[x] = (np.float32(source[x]) - m) * f


@compiled()
def fill_upright_boxes(
    whole: NDArray[np.int32],
    offsets: NDArray[np.int32],
    distances: NDArray[np.float64],
    left_out: NDArray[np.bool_],
    prob_map: NDArray[np.float32],
    thresh_mask: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Draw the polygons that are upright boxes, as most on a receipt are, exactly as clipper and fillPoly would.

    Shrunk by D, a box on whole pixels is the box of its rounded sides, so neither library is needed: half the time
    of a page's maps. Which polygons were drawn is returned; boxes that vanish are not among them.
    """
    height, width = prob_map.shape
    drawn = np.zeros(len(left_out), dtype=np.bool_)
    for p in range(len(left_out)):
        first = offsets[p]
        if left_out[p] or offsets[p + 1] - first != 4:
            continue
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = whole[first], whole[first + 1], whole[first + 2], whole[first + 3]
        upright = (ax == dx and bx == cx and ay == by and cy == dy) or (ax == bx and cx == dx and by == cy and dy == ay)
        if not upright or ax == cx or ay == cy:
            continue
        reach_x, reach_y = distances[p] * _unit(cy - ay), distances[p] * _unit(cx - ax)
        left, right = _round(min(ax, cx) + reach_x), _round(max(ax, cx) - reach_x)
        top, bottom = _round(min(ay, cy) + reach_y), _round(max(ay, cy) - reach_y)
        if left >= right or top >= bottom:
            continue
        drawn[p] = True
        prob_map[max(0, top) : max(0, min(height, bottom + 1)), max(0, left) : max(0, min(width, right + 1))] = 1
        thresh_mask[
            max(0, min(ay, cy)) : max(0, min(height, max(ay, cy) + 1)),
            max(0, min(ax, cx)) : max(0, min(width, max(ax, cx) + 1)),
        ] = True
    return drawn


@compiled(inline="always")
def _unit(length: int) -> float:
    # Clipper's normal of a side, which for 49 pixels is a little under 1: enough to round a half the other way.
    return abs(length) * (1.0 / abs(length))


@compiled(inline="always")
def _round(value: float) -> int:
    # Clipper's rounding: halves away from zero.
    value = min(max(value, -_FAR), _FAR)
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)
