"""batch: samples become dictionaries of tensors, and these one dictionary of stacked tensors and lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.targets import Targets

Item = dict[str, Any]
Batch = dict[str, Any]

# name in an item -> name in a batch
STACKED = {
    "image": "images",
    "prob_map": "prob_maps",
    "thresh_map": "thresh_maps",
    "prob_mask": "prob_masks",
    "thresh_mask": "thresh_masks",
}
LISTED = (
    "polygons",
    "ignore",
    "transcriptions",
    "inverse_matrix",
    "shape",
    "raw_size",
    "orientation",
    "polygon_frame",
    "image_filename",
    "image_path",
)


def are_consecutive(indices: Sequence[int]) -> bool:
    """Whether samples lie side by side.

    >>> are_consecutive([3, 4, 5]), are_consecutive([3, 5])
    (True, False)
    """
    return list(indices) == list(range(indices[0], indices[0] + len(indices)))


def to_item(sample: Sample, normalize: Normalize | None, targets: Targets | None) -> Item:
    """The dictionary of one page; `normalize=None` leaves a uint8 image as it is."""
    item: Item = {"image": image_tensor(sample.image, normalize), **listed(sample)}
    if sample.maps is not None:
        item |= map_tensors(sample.maps)
        item["targets"] = targets
    return item


def listed(sample: Sample) -> Item:
    """What an item holds beside its tensors; copies, for whoever gets it may write to it."""
    polygons = sample.polygons
    vertices = polygons.vertices[None].copy()
    return {
        "polygons": [vertices[:, start:end] for start, end in pairwise(polygons.offsets.tolist())],
        "ignore": polygons.ignore.copy(),
        "transcriptions": list(polygons.texts),
        "inverse_matrix": sample.inverse_matrix.copy(),
        "shape": sample.shape,
        "raw_size": sample.raw_size,
        "orientation": sample.orientation,
        "polygon_frame": sample.polygon_frame,
        "image_filename": sample.filename,
        "image_path": sample.path,
        "annotated": sample.annotated,
    }


def stacked(arrays: Mapping[str, NDArray[Any]]) -> Batch:
    """The tensors of a batch over arrays of all its samples; pages are (B, H, W, 3) uint8 or (B, 3, H, W) floats."""
    batch = {STACKED[name]: torch.from_numpy(array).unsqueeze(1) for name, array in arrays.items() if name != "image"}
    images = torch.from_numpy(arrays["image"])
    return {"images": images.permute(0, 3, 1, 2) if images.dtype == torch.uint8 else images} | batch


def lists(items: Sequence[Item]) -> Batch:
    """What a batch holds beside its tensors."""
    return {name: [item.get(name) for item in items] for name in LISTED}


def as_batch(arrays: Mapping[str, NDArray[Any]], samples: Sequence[Sample]) -> Batch:
    """A batch over arrays that are there already, and the samples that they belong to."""
    return stacked(arrays) | lists([listed(sample) for sample in samples])


def image_tensor(image_hwc: NDArray[Any], normalize: Normalize | None) -> torch.Tensor:
    """(3, H, W): float32 where normalised, otherwise a view of the page as it is."""
    if normalize is not None and image_hwc.dtype == np.uint8:
        return torch.from_numpy(normalize.on_host(image_hwc))
    return _own(image_hwc).permute(2, 0, 1)


def map_tensors(maps: Maps) -> Item:
    """The four maps as (1, H, W) tensors."""
    return {name: _own(array)[None] for name, array in zip(Maps._fields, maps, strict=True)}


def _own(array: NDArray[Any]) -> torch.Tensor:
    """A tensor that may be written to: over the array, or over a copy of one that the cache shares with everybody."""
    return torch.from_numpy(array if array.flags.writeable else array.copy(order="K"))


def collate(items: Sequence[Item | None], targets: Targets) -> Batch | None:
    """Stack items into a batch; samples that were skipped (None) are left out, and a batch of them only is None.

    Items without maps, or with maps of other parameters than `targets`, get them drawn here.
    """
    present = [item for item in items if item is not None]
    if not present:
        return None
    with_maps = [item if _fits(item, targets) else item | _draw(item, targets) for item in present]
    batch: Batch = {plural: _stack([item[name] for item in with_maps]) for name, plural in STACKED.items()}
    return batch | lists(present)


def _fits(item: Item, targets: Targets) -> bool:
    if "prob_map" not in item or "prob_mask" not in item:
        return False
    drawn_with: Targets | None = item.get("targets")
    return drawn_with is None or same_maps(drawn_with, targets)


def same_maps(drawn_with: Targets, targets: Targets) -> bool:
    """Whether a collate function is content with maps that were drawn before; it has no say in the text size."""
    return replace(drawn_with, min_text_size=0.0) == replace(targets, min_text_size=0.0)


def _draw(item: Item, targets: Targets) -> Item:
    height, width = item["image"].shape[-2:]
    drawn_with: Targets | None = item.get("targets")
    if drawn_with is not None:
        targets = replace(targets, min_text_size=drawn_with.min_text_size)
    polygons = Polygons.pack(item["polygons"], item.get("ignore"))
    return map_tensors(targets.draw(polygons, width, height, item.get("annotated", True)))


def _stack(tensors: list[torch.Tensor]) -> torch.Tensor:
    first = tensors[0]
    sizes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(sizes) > 1:
        raise ConfigError(f"pages of {sizes} in one batch: end the fixed transforms with a Letterbox(size)")
    if first.ndim == 3 and first.stride(0) == 1 and first.shape[0] > 1:
        # uint8 pages are (H, W, 3) in memory: stacked so, and shown as (B, 3, H, W), nothing is reordered.
        return torch.stack([tensor.permute(1, 2, 0) for tensor in tensors]).permute(0, 3, 1, 2)
    return torch.stack(tensors)
