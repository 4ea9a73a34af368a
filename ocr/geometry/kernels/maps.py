"""The compiled loops over pixels. Everything else about maps is in `ocr/pipeline/targets.py`."""

import math

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled

# Pixels; no page reaches this far, and integers reach further.
_FAR = float(1 << 40)


@compiled()
def measure_outlines(
    vertices: NDArray[np.float32], offsets: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Area and length of each closed outline: `Polygons.areas` and `perimeters` without their temporary arrays."""
    count = len(offsets) - 1
    areas, lengths = np.empty(count), np.empty(count)
    for p in range(count):
        first, last = offsets[p], offsets[p + 1]
        area, length, first_cross, first_length = 0.0, 0.0, 0.0, 0.0
        for i in range(first, last):
            j = i + 1 if i + 1 < last else first
            # In float64, where products of float32 coordinates are exact; float() stays what it is.
            ax, ay = np.float64(vertices[i, 0]), np.float64(vertices[i, 1])
            bx, by = np.float64(vertices[j, 0]), np.float64(vertices[j, 1])
            if i == first:
                first_cross, first_length = ax * by - ay * bx, math.hypot(bx - ax, by - ay)
            else:
                area += ax * by - ay * bx
                length += math.hypot(bx - ax, by - ay)
        # The first edge last, as NumPy adds up: the same bits for up to eight edges.
        areas[p], lengths[p] = abs(first_cross + area) / 2, first_length + length
    return areas, lengths


@compiled()
def draw_maps(
    vertices: NDArray[np.float32],
    offsets: NDArray[np.int32],
    distances: NDArray[np.float64],
    boxes: NDArray[np.int64],
    low: float,
    high: float,
    annotated: bool,
    prob_map: NDArray[np.float32],
    thresh_map: NDArray[np.float32],
    prob_mask: NDArray[np.bool_],
    thresh_mask: NDArray[np.bool_],
) -> None:
    """All of the maps but the polygons that are not boxes: the border band of each, its mask, and the boxes."""
    height, width = thresh_map.shape
    lowest = np.float32(low)
    for y in range(height):
        thresh_map[y] = lowest
    _raise_border_band(vertices, offsets, distances, low, high, thresh_map)
    for y in range(height):
        row, mask = thresh_map[y], thresh_mask[y]
        for x in range(width):
            mask[x] = row[x] > lowest
        prob_map[y] = 0
        prob_mask[y] = annotated
    _fill_boxes(boxes, prob_map, thresh_mask)


@compiled(fastmath={"nsz", "arcp", "contract", "reassoc"})
def _raise_border_band(
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
                    thresh_map[y, x_first : x_last + 1], x_first, ax, bx, y - ay, y - by, dx, dy, square_length,
                    reach, low, high,
                )  # fmt: skip


@compiled()
def _within(value: float, low: int, high: int) -> float:
    """The value, from `low` to `high`. A float beyond 2^63 has no integer: converted, it can be any address."""
    if not value > low:  # NaN too.
        return float(low)
    return value if value < high else float(high)


@compiled(fastmath={"nsz", "arcp", "contract", "reassoc"}, inline="always")
def _raise_row(  # type: ignore[no-untyped-def]
    stretch, start, ax, bx, from_ay, from_by, dx, dy, square_length, reach, low, high
) -> None:
    zero = np.float32(0)
    peak, slope = np.float32(high), np.float32((high - low) / reach)
    inverse_length = np.float32(1 / math.sqrt(square_length))
    a, b = np.float32(ax), np.float32(bx)
    ya, yb = np.float32(from_ay), np.float32(from_by)
    edge_x, edge_y = np.float32(dx), np.float32(dy)
    # No branch, no second array, and an index that begins at 0 and so is not negative: it runs 16 pixels at a time.
    for at in range(len(stretch)):
        x = np.float32(start + at)
        xa, xb = x - a, x - b
        to_a, to_b = xa * xa + ya * ya, xb * xb + yb * yb
        normal = (xa * edge_y - ya * edge_x) * inverse_length
        sharp = xa * xb + ya * yb > zero
        square = min(to_a, to_b) if sharp else normal * normal
        stretch[at] = max(stretch[at], peak - np.sqrt(square) * slope)


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
def find_upright_boxes(
    whole: NDArray[np.int32],
    offsets: NDArray[np.int32],
    distances: NDArray[np.float64],
    left_out: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The polygons that are upright boxes, as most on a receipt are: (left, top, right, bottom) shrunk, then unshrunk.

    Shrunk by D, a box on whole pixels is the box of its rounded sides, so neither clipper nor fillPoly is needed: half
    the time of a page's maps. Also returns which polygons they are; boxes that vanish are not among them.
    """
    boxes, found = np.empty((len(left_out), 8), dtype=np.int64), np.zeros(len(left_out), dtype=np.bool_)
    used = 0
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
        boxes[used, 0], boxes[used, 1], boxes[used, 2], boxes[used, 3] = left, top, right, bottom
        boxes[used, 4], boxes[used, 5], boxes[used, 6], boxes[used, 7] = (
            min(ax, cx),
            min(ay, cy),
            max(ax, cx),
            max(ay, cy),
        )
        found[p] = True
        used += 1
    return boxes[:used], found


@compiled()
def _fill_boxes(boxes: NDArray[np.int64], prob_map: NDArray[np.float32], thresh_mask: NDArray[np.bool_]) -> None:
    """Draw what `find_upright_boxes` found, exactly as clipper and fillPoly would."""
    height, width = prob_map.shape
    for box in boxes:
        left, top, right, bottom = max(0, box[0]), max(0, box[1]), min(width, box[2] + 1), min(height, box[3] + 1)
        prob_map[top : max(0, bottom), left : max(0, right)] = 1
        left, top, right, bottom = max(0, box[4]), max(0, box[5]), min(width, box[6] + 1), min(height, box[7] + 1)
        thresh_mask[top : max(0, bottom), left : max(0, right)] = True


@compiled(inline="always")
def _unit(length: int) -> float:
    # Clipper's normal of a side, which for 49 pixels is a little under 1: enough to round a half the other way.
    return abs(length) * (1.0 / abs(length))


@compiled(inline="always")
def _round(value: float) -> int:
    # Clipper's rounding: halves away from zero.
    value = min(max(value, -_FAR), _FAR)
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)
