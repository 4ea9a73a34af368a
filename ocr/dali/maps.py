"""Maps with their border bands drawn by torch on the model's device: the band is what takes the host the longest.

Filling polygons stays with the host, whose clipper and fillPoly define them, as one byte a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from ocr.geometry.kernels.maps import fill_upright_boxes
from ocr.geometry.polygons import Polygons
from ocr.pipeline.batch import Batch
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.targets import Targets, shrink

# (edge, pixel) pairs that are looked at together: about 40 bytes each.
MOST_PAIRS = 1 << 22


def draw_on_device(targets: Targets, samples: Sequence[Sample], device: torch.device) -> Batch:
    """The four maps of a batch, as `Targets.draw` has them, on the device."""
    pages = []
    for sample in samples:
        fills, distances = fill(targets, sample.polygons, *sample.size, sample.annotated)
        prob_map, thresh_mask, prob_mask = torch.from_numpy(fills).to(device, non_blocking=True).bool()
        band = torch.full(prob_map.shape, targets.thresh_min, device=device)
        raise_band(sample.polygons, distances, targets.thresh_min, targets.thresh_max, band)
        around = (thresh_mask | (band > targets.thresh_min)) & (prob_mask | (not sample.annotated))
        pages.append((prob_map.float(), band, prob_mask, around))
    prob_maps, thresh_maps, prob_masks, thresh_masks = (torch.stack(maps)[:, None] for maps in zip(*pages, strict=True))
    names = [f"{name}s" for name in Maps._fields]
    return dict(zip(names, (prob_maps, thresh_maps, prob_masks, thresh_masks), strict=True))


def fill(
    targets: Targets, polygons: Polygons, width: int, height: int, annotated: bool
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """(3, H, W): shrunk polygons, whole polygons, and where nothing is left out; D of each polygon, 0 if left out."""
    prob_map = np.zeros((height, width), dtype=np.float32)
    whole_fill = np.zeros((height, width), dtype=np.bool_)
    mask = np.full((height, width), annotated, dtype=np.uint8)
    if not len(polygons):
        return np.stack([prob_map.astype(np.uint8), whole_fill.view(np.uint8), mask]), np.zeros(0)
    areas, perimeters = polygons.areas, polygons.perimeters
    distances = areas * (1 - targets.shrink_ratio**2) / np.maximum(perimeters, 1e-9)
    left_out = polygons.ignore | (areas <= 0) | targets._too_small(polygons, areas, perimeters)
    whole = polygons.vertices.astype(np.int32)
    outlines = np.split(whole, polygons.offsets[1:-1])
    drawn = fill_upright_boxes(whole, polygons.offsets, distances, left_out, prob_map, whole_fill)
    for p in np.flatnonzero(~left_out & ~drawn):
        pieces = shrink(outlines[p], distances[p])
        for piece in pieces:
            cv2.fillPoly(prob_map, [piece], 1.0)
        if pieces:
            cv2.fillPoly(whole_fill.view(np.uint8), [outlines[p]], 1)
        else:
            left_out[p] = True
    distances[left_out] = 0
    for p in np.flatnonzero(left_out):
        cv2.fillPoly(mask, [outlines[p]], 0)
    return np.stack([prob_map.astype(np.uint8), whole_fill.view(np.uint8), mask]), distances


def raise_band(
    polygons: Polygons, distances: NDArray[np.float64], low: float, high: float, thresh_map: torch.Tensor
) -> None:
    """Raise an (H, W) map to `low + (high - low) * (1 - d / D)` within D of each outline, as the compiled kernel does.

    Every edge is evaluated over its padded bounding box, a few million pairs of an edge and a pixel at a time.
    """
    edges = _edges(polygons, distances)
    if not len(edges):
        return
    height, width = thresh_map.shape
    ends, reach = edges[:, :4].reshape(-1, 2, 2), edges[:, 4:]
    first = np.maximum(np.ceil(ends.min(axis=1) - reach), 0).astype(np.int64)
    last = np.minimum(np.floor(ends.max(axis=1) + reach), (width - 1, height - 1)).astype(np.int64)
    boxes = np.concatenate([first, np.maximum(last - first + 1, 0)], axis=1)
    pairs = np.cumsum(boxes[:, 2] * boxes[:, 3])
    groups = np.unique(pairs // MOST_PAIRS, return_index=True)[1].tolist()
    for start, end in zip(groups, [*groups[1:], len(edges)], strict=True):
        _raise_edges(edges[start:end], boxes[start:end], low, high, thresh_map)


def _edges(polygons: Polygons, distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """(E, 5): both ends of every edge of some length, and how far its band reaches."""
    start, end = polygons._edges()
    reach = np.repeat(distances, np.diff(polygons.offsets))
    kept = (reach > 0) & (start != end).any(axis=1)
    edges: NDArray[np.float64] = np.column_stack([start, end, reach])[kept]
    return edges


def _raise_edges(
    edges: NDArray[np.float64], boxes: NDArray[np.int64], low: float, high: float, thresh_map: torch.Tensor
) -> None:
    device, width = thresh_map.device, thresh_map.shape[1]
    left, top, columns, rows = torch.from_numpy(boxes).to(device).unbind(1)
    counts = columns * rows
    edge = torch.repeat_interleave(counts)
    within = torch.arange(len(edge), device=device) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    x, y = left[edge] + within % columns[edge], top[edge] + within // columns[edge]
    ax, ay, bx, by, reach = torch.from_numpy(edges).to(device)[edge].unbind(1)
    xa, ya, xb, yb = ((x - ax).float(), (y - ay).float(), (x - bx).float(), (y - by).float())
    dx, dy = (bx - ax).float(), (by - ay).float()
    normal = (xa * dy - ya * dx) / torch.hypot(dx, dy)
    # The pixel sees the edge under less than 90 degrees: the nearer end counts.
    sharp = xa * xb + ya * yb > 0
    ends = torch.minimum(xa * xa + ya * ya, xb * xb + yb * yb)
    square = torch.where(sharp, ends, normal * normal)
    raised = high - square.sqrt() * ((high - low) / reach).float()
    thresh_map.view(-1).scatter_reduce_(0, y * width + x, raised, "amax")
