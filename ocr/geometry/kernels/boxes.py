"""The compiled loop over the outlines of a map: thin out, score, unclip, measure."""

import math

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled
from ocr.geometry.kernels.fill import mean_inside
from ocr.geometry.kernels.offset import grow
from ocr.geometry.kernels.outlines import approximate, area_and_length
from ocr.geometry.kernels.rectangle import smallest_rectangle

# Share of an outline's length by which its polygon can miss it: the published value, about half a pixel on a line.
_TOLERANCE = 0.002
# Published: the unclipped box must be this much larger than the smallest text, in pixels.
_UNCLIPPED_MARGIN = 2
# Corners of upright text are integers up to rounding errors, and must not be truncated to the pixel before.
_ALMOST_WHOLE = 1e-4
# Kernels of a learned map have as many pixels above this level as kernels of its target, at whatever `thresh` they are
# cut: between 0.25 and 0.5 a compromise of the H-means at IoU 0.5, 0.7 and 0.8, chosen on 28 receipts of one training.
_KERNEL_LEVEL = 0.4
# Outlines run through the centres of pixels, polygons of a page begin at the corner of the first one.
_CENTRE = 0.5
# Polygons are grown in quarters of a pixel: whole ones would move each side by up to half a pixel.
_STEPS = 4
# Pixels by which a grown polygon can be thinned out: the steps of its outline become as many corners on every side.
_TOO_FINE = 0.25


@compiled()
def polygons_from_outlines(
    prob_map: NDArray[np.float32],
    points: NDArray[np.int32],
    starts: NDArray[np.int64],
    box_thresh: float,
    unclip_ratio: float,
    shrink_ratio: float,
    min_size: float,
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """Unclipped polygons on the map, packed: vertices, offsets and scores. An unclip ratio of 0 stands for exact."""
    steps, shift = _STEPS if unclip_ratio == 0 else 1, _CENTRE if unclip_ratio == 0 else 0.0
    count = len(starts) - 1
    vertices = np.empty((max(32 * count, 1), 2), dtype=np.float32)
    offsets, scores = np.zeros(count + 1, dtype=np.int32), np.empty(count, dtype=np.float32)
    kept = 0
    for i in range(count):
        outline = points[starts[i] : starts[i + 1]]
        polygon = approximate(outline, _TOLERANCE * area_and_length(outline)[1])
        if len(polygon) < 4:
            continue
        score, faint = mean_inside(prob_map, polygon, _KERNEL_LEVEL)
        if score < box_thresh:
            continue
        area, length = area_and_length(polygon)
        distance = _distance(abs(area), length, faint, unclip_ratio, shrink_ratio, math.pi)
        box = grow(polygon * np.int32(steps), distance * steps)
        if unclip_ratio == 0:
            box = approximate(box, _STEPS * _TOO_FINE)
        if len(box) < 3 or smallest_rectangle(box)[1] < (min_size + _UNCLIPPED_MARGIN) * steps:
            continue
        start, end = offsets[kept], offsets[kept] + len(box)
        while end > len(vertices):
            vertices = np.concatenate((vertices, np.empty_like(vertices)))
        vertices[start:end] = box / steps + shift
        scores[kept] = score
        kept += 1
        offsets[kept] = end
    return vertices[: offsets[kept]], offsets[: kept + 1], scores[:kept]


@compiled()
def quads_from_outlines(
    prob_map: NDArray[np.float32],
    points: NDArray[np.int32],
    starts: NDArray[np.int64],
    box_thresh: float,
    unclip_ratio: float,
    shrink_ratio: float,
    min_size: float,
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """Unclipped rectangles on the map, packed, as `polygons_from_outlines` gives polygons: four vertices each."""
    count = len(starts) - 1
    vertices, scores = np.empty((4 * count, 2), dtype=np.float32), np.empty(count, dtype=np.float32)
    quad = np.empty((4, 2), dtype=np.int32)
    kept = 0
    for i in range(count):
        corners, side = smallest_rectangle(points[starts[i] : starts[i + 1]])
        if unclip_ratio > 0 and side < min_size:
            continue
        for corner in range(4):
            for axis in range(2):
                # Towards zero, as the published loop cuts.
                quad[corner, axis] = int(corners[corner, axis] + _ALMOST_WHOLE)
        score, faint = mean_inside(prob_map, quad, _KERNEL_LEVEL)
        if unclip_ratio == 0:
            # A rectangle round text that is bent, or touches the next line, has much in it that is not text: scored
            # by it, receipts lose 0.11 of their recall at the same threshold.
            outline = points[starts[i] : starts[i + 1]]
            polygon = approximate(outline, _TOLERANCE * area_and_length(outline)[1])
            score = mean_inside(prob_map, polygon, _KERNEL_LEVEL)[0]
        area, length = area_and_length(corners)
        if score < box_thresh or area == 0:
            continue
        distance = _distance(abs(area), length, faint, unclip_ratio, shrink_ratio, 4.0)
        corners, side = _widened(corners, side, distance) if unclip_ratio == 0 else _rounded(quad, distance)
        if side < min_size + _UNCLIPPED_MARGIN:
            continue
        vertices[4 * kept : 4 * kept + 4] = corners
        scores[kept] = score
        kept += 1
    return vertices[: 4 * kept], np.arange(0, 4 * kept + 1, 4, dtype=np.int32), scores[:kept]


@compiled()
def _distance(area, length, faint, unclip_ratio, shrink_ratio, corners):  # type: ignore[no-untyped-def]
    """How far an outline is moved out."""
    if unclip_ratio == 0:
        return _shrunk_by(area, length, faint, shrink_ratio, corners)
    return area * unclip_ratio / length


@compiled()
def _shrunk_by(area: float, length: float, faint: int, shrink_ratio: float, corners: float) -> float:
    """How far the outline of a kernel is inside its text, whose area A and perimeter L gave D = A (1 - r^2) / L.

    Growing a kernel of area a and perimeter l by D gives A = a + l D + c D^2 and L = l + 2 c D, where c stands for the
    corners: 4 if they are right angles, pi if they are round. So c (1 + r^2) D^2 + r^2 l D - (1 - r^2) a = 0.
    The outline of a learned kernel has bumps and soft edges: first it moves in until it has lost the `faint` pixels.
    """
    moved_in = min(float(faint), area / 2) / length
    kernel, border = area - moved_in * (length - corners * moved_in), length - 2 * corners * moved_in
    kept = shrink_ratio * shrink_ratio
    square, linear = corners * (1 + kept), kept * border
    distance = (math.sqrt(linear * linear + 4 * square * (1 - kept) * kernel) - linear) / (2 * square)
    return max(distance - moved_in, 1 / _STEPS)


@compiled()
def _widened(corners, side, distance):  # type: ignore[no-untyped-def]
    """A rectangle with its sides moved out, from pixel centres to coordinates of the page, and its shorter side."""
    out = corners + _CENTRE
    for i in range(4):
        for j in ((i + 1) % 4, (i + 3) % 4):
            dx, dy = corners[i, 0] - corners[j, 0], corners[i, 1] - corners[j, 1]
            scale = distance / math.sqrt(dx * dx + dy * dy)
            out[i, 0], out[i, 1] = out[i, 0] + scale * dx, out[i, 1] + scale * dy
    return out, side + 2 * distance


@compiled()
def _rounded(quad, distance):  # type: ignore[no-untyped-def]
    """The same on whole pixels, as published; without a side if the rectangle vanishes there."""
    box = grow(quad, distance)
    if len(box) < 3:
        return np.zeros((4, 2)), 0.0
    return smallest_rectangle(box)
