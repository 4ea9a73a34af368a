"""Maps with their border bands drawn by torch on the model's device: the band is what takes the host the longest.

The host fills the polygons, because its Clipper and fillPoly define them, and sends one byte per pixel and map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.geometry.polygons import Polygons
from ocr.pipeline.batch import Batch
from ocr.pipeline.padding import Padding
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.targets import Targets

# (edge, pixel) pairs that are evaluated together: about 40 bytes each.
MAX_PAIRS = 1 << 22


def draw_on_device(targets: Targets, samples: Sequence[Sample], device: torch.device, shape_hw: Sequence[int]) -> Batch:
    """The four maps of a batch of this size, as `Targets.draw` has them, on the device."""
    pages = []
    for sample in samples:
        width, height = sample.size
        prob_map, masks = np.empty((height, width), np.float32), np.empty((2, height, width), np.bool_)
        reach = targets.fill(sample.polygons, sample.annotated, prob_map, *masks)
        fills = np.concatenate([prob_map.astype(np.bool_)[None], masks])
        inside, prob_mask, thresh_mask = torch.from_numpy(fills).to(device, non_blocking=True)
        band = torch.full(inside.shape, targets.thresh_min, device=device)
        raise_band(sample.polygons, reach, targets.thresh_min, targets.thresh_max, band)
        around = (thresh_mask | (band > targets.thresh_min)) & (prob_mask | (not sample.annotated))
        pages.append((inside.float(), band, prob_mask, around))
    names = [f"{name}s" for name in Maps._fields]
    around_pages = Padding(0, targets.thresh_min).of_maps.values()
    stacked = [
        torch.stack([_padded(page, shape_hw, value) for page in maps])[:, None]
        for maps, value in zip(zip(*pages, strict=True), around_pages, strict=True)
    ]
    return dict(zip(names, stacked, strict=True))


def _padded(page: torch.Tensor, shape_hw: Sequence[int], value: float) -> torch.Tensor:
    height, width = page.shape
    return torch.nn.functional.pad(page, (0, shape_hw[1] - width, 0, shape_hw[0] - height), value=value)


def raise_band(
    polygons: Polygons, distances: NDArray[np.float64], low: float, high: float, thresh_map: torch.Tensor
) -> None:
    """Raise an (H, W) map to `low + (high - low) * (1 - d / D)` within D of each outline, as the compiled kernel does.

    Every edge is evaluated over its padded bounding box, at most `MAX_PAIRS` pairs of edge and pixel at a time.
    """
    edges = _edges(polygons, distances)
    if not len(edges):
        return
    height, width = thresh_map.shape
    ends, reach = edges[:, :4].reshape(-1, 2, 2), edges[:, 4:]
    # Cut to the page before they become integers, which hold no number beyond 2^63.
    first = np.ceil(ends.min(axis=1) - reach).clip(0, (width, height)).astype(np.int64)
    last = np.floor(ends.max(axis=1) + reach).clip(-1, (width - 1, height - 1)).astype(np.int64)
    boxes = np.concatenate([first, np.maximum(last - first + 1, 0)], axis=1)
    pairs = np.cumsum(boxes[:, 2] * boxes[:, 3])
    groups = np.unique(pairs // MAX_PAIRS, return_index=True)[1].tolist()
    for start, end in zip(groups, [*groups[1:], len(edges)], strict=True):
        _raise_edges(edges[start:end], boxes[start:end], low, high, thresh_map)


def _edges(polygons: Polygons, distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """(E, 5): both ends of every edge that has a length, and how far its band reaches."""
    start, end = polygons.edges()
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
