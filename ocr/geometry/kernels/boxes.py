"""The compiled loop over the outlines of a map: thin out, score, unclip, measure."""

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled
from ocr.geometry.kernels.fill import mean_inside
from ocr.geometry.kernels.offset import grow
from ocr.geometry.kernels.outlines import approximate, area_and_length
from ocr.geometry.kernels.rectangle import smallest_rectangle

# Share of an outline's length by which its polygon may miss it: the published value, about half a pixel on a line.
_TOLERANCE = 0.002
# Published: the unclipped box must be this much larger than the smallest text, in pixels.
_UNCLIPPED_MARGIN = 2
# Corners of upright text are integers up to rounding errors, and must not be truncated to the pixel before.
_ALMOST_WHOLE = 1e-4


@compiled()
def polygons_from_outlines(
    prob_map: NDArray[np.float32],
    points: NDArray[np.int32],
    starts: NDArray[np.int64],
    box_thresh: float,
    unclip_ratio: float,
    min_size: float,
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """Unclipped polygons on the map, packed: vertices, offsets and scores."""
    count = len(starts) - 1
    vertices = np.empty((max(32 * count, 1), 2), dtype=np.float32)
    offsets, scores = np.zeros(count + 1, dtype=np.int32), np.empty(count, dtype=np.float32)
    kept = 0
    for i in range(count):
        outline = points[starts[i] : starts[i + 1]]
        polygon = approximate(outline, _TOLERANCE * area_and_length(outline)[1])
        if len(polygon) < 4:
            continue
        score = mean_inside(prob_map, polygon)
        if score < box_thresh:
            continue
        area, length = area_and_length(polygon)
        box = grow(polygon, abs(area) * unclip_ratio / length)
        if len(box) < 3 or smallest_rectangle(box)[1] < min_size + _UNCLIPPED_MARGIN:
            continue
        start, end = offsets[kept], offsets[kept] + len(box)
        while end > len(vertices):
            vertices = np.concatenate((vertices, np.empty_like(vertices)))
        vertices[start:end] = box
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
    min_size: float,
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """Unclipped rectangles on the map, four vertices each, packed: vertices, offsets and scores."""
    count = len(starts) - 1
    vertices, scores = np.empty((4 * count, 2), dtype=np.float32), np.empty(count, dtype=np.float32)
    quad = np.empty((4, 2), dtype=np.int32)
    kept = 0
    for i in range(count):
        corners, side = smallest_rectangle(points[starts[i] : starts[i + 1]])
        if side < min_size:
            continue
        for corner in range(4):
            for axis in range(2):
                # Towards zero, as the published loop cuts.
                quad[corner, axis] = int(corners[corner, axis] + _ALMOST_WHOLE)
        score = mean_inside(prob_map, quad)
        if score < box_thresh:
            continue
        area, length = area_and_length(corners)
        box = grow(quad, abs(area) * unclip_ratio / length)
        if len(box) < 3:
            continue
        corners, side = smallest_rectangle(box)
        if side < min_size + _UNCLIPPED_MARGIN:
            continue
        vertices[4 * kept : 4 * kept + 4] = corners
        scores[kept] = score
        kept += 1
    return vertices[: 4 * kept], np.arange(0, 4 * kept + 1, 4, dtype=np.int32), scores[:kept]
