"""batch: samples are written into the slots of a batch, or become items that are stacked into a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch

from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.sample import Array, Maps, Sample, rounded_up
from ocr.pipeline.targets import MAPS, StoredTargets, Targets
from ocr.pipeline.timing import timed

T = TypeVar("T")
Item = dict[str, Any]
Batch = dict[str, Any]

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


@dataclass(frozen=True, slots=True)
class Padding:
    """What is right of and below a page with its own shape: `fill`, nothing to find, and no loss."""

    fill: int
    of_maps: Mapping[str, float]
    """The value around each map."""
    normalize: Normalize | None = None
    """How pages are normalised on the host; None if they stay bytes."""

    def of_image(self, dtype: np.dtype[Any]) -> Array:
        """The pixel around a page, (3, 1, 1)."""
        pixel = np.full((1, 1, 3), self.fill, dtype=np.uint8)
        if dtype == np.uint8 or self.normalize is None:
            return pixel.transpose(2, 0, 1).astype(dtype)
        return self.normalize.on_host(pixel)


def fill_around(array: Array, height: int, width: int, value: Any) -> None:
    """Fill all of a (..., H, W) array but the first `height` rows and `width` columns."""
    array[..., height:, :] = value
    array[..., :height, width:] = value


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """The place of one sample in a batch."""

    image: Array
    """(H, W, 3) bytes, or (3, H, W) floats."""
    maps: Maps
    padding: Padding | None = None
    """What is around a page that is smaller than the slot; None if none may be."""

    def write(self, sample: Sample, normalize: Normalize | None, targets: Targets | StoredTargets) -> Sample:
        """Write page and maps of a sample; returns the sample with where its maps came from.

        The page is left out if DALI holds its pixels.
        """
        inner = self.inside(*sample.size)
        if sample.lazy is not None:
            _fill(partial(sample.lazy.write, normalize=normalize), inner.image)
        elif sample.image.size:
            inner.write_page(sample.image, normalize)
        with timed("targets"):
            source = _fill(
                lambda *arrays: targets.write(sample, dict(zip(inner.maps, arrays, strict=True))), *inner.maps.values()
            )
        return replace(sample, maps=inner.maps, map_source=source)

    def inside(self, width: int, height: int) -> Slot:
        """The part of the slot that a page takes, what is around it filled."""
        if self.padding is None or next(iter(self.maps.values())).shape[-2:] == (height, width):
            return self
        image_chw = self.image.transpose(2, 0, 1) if self.image.dtype == np.uint8 else self.image
        fill_around(image_chw, height, width, self.padding.of_image(self.image.dtype))
        for name, array in self.maps.items():
            fill_around(array, height, width, self.padding.of_maps[name])
        inner = self.image[:height, :width] if self.image.dtype == np.uint8 else self.image[:, :height, :width]
        return Slot(inner, {name: array[..., :height, :width] for name, array in self.maps.items()})

    def write_page(self, image_hwc: Array, normalize: Normalize | None) -> None:
        """Copy the page, or normalise it on the way."""
        if self.image.dtype == np.uint8:
            np.copyto(self.image, image_hwc)
        elif image_hwc.dtype == np.uint8 and normalize is not None:
            _fill(partial(normalize.on_host, image_hwc), self.image)
        else:
            np.copyto(self.image, image_hwc.transpose(2, 0, 1))


def _fill(write: Callable[..., T], *arrays: Array) -> T:
    """Write arrays; those that have gaps, which compiled kernels do not take, are copied from others in the end."""
    written = [array if array.flags.c_contiguous else np.empty(array.shape, array.dtype) for array in arrays]
    returned = write(*written)
    for array, source in zip(arrays, written, strict=True):
        if source is not array:
            np.copyto(array, source)
    return returned


def to_item(
    sample: Sample, normalize: Normalize | None, targets: Targets | None, padding: Padding | None = None
) -> Item:
    """The dictionary of one page; `normalize=None` leaves a uint8 image as it is.

    With `padding`, sides become multiples of 32, and batches may pad the page further.
    """
    item: Item = {"image": image_tensor(sample.image, normalize), **listed(sample)}
    if sample.maps is not None:
        item |= map_tensors(sample.maps)
        item["targets"] = targets
    if padding is None:
        return item
    return _padded(item | {"padding": padding, "page_hw": sample.image.shape[:2]}, *rounded_up(*sample.image.shape[:2]))


def in_shape(item: Item | None, shape_hw: tuple[int, int] | None) -> Item | None:
    """An item that `collate` pads to this (height, width), if it is not larger."""
    return item if item is None or shape_hw is None else item | {"batch_hw": shape_hw}


def _padded(item: Item, height: int, width: int) -> Item:
    """An item whose tensors have this size; what is around its page does not count."""
    padding: Padding = item["padding"]
    rows, columns = item["page_hw"]
    made = {}
    for name in ("image", *MAPS):
        if name not in item or item[name].shape[-2:] == (height, width):
            continue
        array = item[name].numpy()
        # uint8 pages are (H, W, 3) in memory.
        is_page = name == "image" and array.dtype == np.uint8
        out = np.empty((height, width, 3) if is_page else (*array.shape[:-2], height, width), array.dtype)
        out = out.transpose(2, 0, 1) if is_page else out
        out[..., :rows, :columns] = array[..., :rows, :columns]
        value = padding.of_image(array.dtype) if name == "image" else padding.of_maps[name]
        fill_around(out, rows, columns, value)
        made[name] = torch.from_numpy(out)
    return item | made


def listed(sample: Sample) -> Item:
    """What an item holds besides its tensors; copies, because the user may write to them."""
    unseen = {"unseen": _words(sample.unseen)} if len(sample.unseen) else {}
    return unseen | {
        **_words(sample.polygons),
        "inverse_matrix": sample.inverse_matrix.copy(),
        "shape": sample.shape,
        "raw_size": sample.raw_size,
        "orientation": sample.orientation,
        "polygon_frame": sample.polygon_frame,
        "image_filename": sample.filename,
        "image_path": sample.path,
        "annotated": sample.annotated,
    }


def _words(polygons: Polygons) -> Item:
    vertices = polygons.vertices[None].copy()
    units = {"units": polygons.units.copy()} if polygons.units.any() else {}
    return units | {
        "polygons": [vertices[:, start:end] for start, end in pairwise(polygons.offsets.tolist())],
        "ignore": polygons.ignore.copy(),
        "transcriptions": list(polygons.texts),
    }


def stacked(arrays: Mapping[str, Array]) -> Batch:
    """The tensors of a batch over arrays of all its samples; pages are (B, H, W, 3) uint8 or (B, 3, H, W) floats."""
    images = torch.from_numpy(arrays["image"])
    maps = {spec.batch_name: _with_unit_axis(torch.from_numpy(arrays[name]), 1) for name, spec in MAPS.items()}
    return {"images": images.permute(0, 3, 1, 2) if images.dtype == torch.uint8 else images} | maps


def lists(items: Sequence[Item]) -> Batch:
    """What a batch holds besides its tensors."""
    names = (*LISTED, *(name for name in ("units", "unseen") if any(name in item for item in items)))
    return {name: [item.get(name) for item in items] for name in names}


def image_tensor(image_hwc: Array, normalize: Normalize | None) -> torch.Tensor:
    """(3, H, W): float32 if normalised, otherwise a view of the page."""
    if normalize is not None and image_hwc.dtype == np.uint8:
        return torch.from_numpy(normalize.on_host(image_hwc))
    return _writable(image_hwc).permute(2, 0, 1)


def map_tensors(maps: Maps) -> Item:
    """The maps as (1, H, W) tensors, or (U, H, W) of several units."""
    return {name: _with_unit_axis(_writable(array), 0) for name, array in maps.items()}


def _with_unit_axis(maps: torch.Tensor, axis: int) -> torch.Tensor:
    return maps if maps.ndim == axis + 3 else maps.unsqueeze(axis)


def _writable(array: Array) -> torch.Tensor:
    """A tensor over the array, or over a copy of one that must not be written."""
    return torch.from_numpy(array if array.flags.writeable else array.copy(order="K"))


def collate(items: Sequence[Item | None], targets: Targets) -> Batch | None:
    """Stack items into a batch; skipped samples (None) are left out, and a batch with no others is None.

    Maps are drawn here for items that have none, or whose maps have other parameters than `targets`.
    """
    present = [item for item in items if item is not None]
    if not present:
        return None
    with_maps = [item if _fits(item, targets) else item | _draw(item, targets) for item in present]
    if all("padding" in item for item in present):
        # Pages that keep their shape; one that a stage made larger than planned enlarges its batch.
        sizes = [(*item["image"].shape[-2:], *item.get("batch_hw", (0, 0))) for item in present]
        height, width = (max(max(size[side::2]) for size in sizes) for side in (0, 1))
        with_maps = [_padded(item, height, width) for item in with_maps]
    batch: Batch = {"images": _stack([item["image"] for item in with_maps])}
    batch |= {spec.batch_name: _stack([item[name] for item in with_maps]) for name, spec in MAPS.items()}
    return batch | lists(present)


def _fits(item: Item, targets: Targets) -> bool:
    if any(name not in item for name in MAPS):
        return False
    drawn_with: Targets | None = item.get("targets")
    return drawn_with is None or same_maps(drawn_with, targets)


def same_maps(drawn_with: Targets, targets: Targets) -> bool:
    """Whether maps that were drawn before are those of a collate function, which sets neither text size nor units."""
    return drawn_with == _as_drawn(drawn_with, targets)


def _as_drawn(drawn_with: Targets, targets: Targets) -> Targets:
    return replace(targets, min_text_size=drawn_with.min_text_size, units=drawn_with.units)


def _draw(item: Item, targets: Targets) -> Item:
    height, width = item.get("page_hw") or item["image"].shape[-2:]
    drawn_with: Targets | None = item.get("targets")
    if drawn_with is not None:
        targets = _as_drawn(drawn_with, targets)
    units = {"units": item["units"]} if "units" in item else {}
    polygons = Polygons.pack(item["polygons"], item.get("ignore"), **units)
    maps = map_tensors(targets.draw(polygons, width, height, item.get("annotated", True)))
    return maps | ({"padding": replace(item["padding"], of_maps=targets.outside)} if "padding" in item else {})


def _stack(tensors: list[torch.Tensor]) -> torch.Tensor:
    first = tensors[0]
    sizes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(sizes) > 1:
        problem = f"pages of {sizes} in one batch. End the fixed transforms with a Letterbox(size)"
        raise ConfigError(problem, setting="transforms", value=sizes)
    if first.ndim == 3 and first.stride(0) == 1 and first.shape[0] > 1:
        # uint8 pages are (H, W, 3) in memory: stacked that way and viewed as (B, 3, H, W), nothing is reordered.
        return torch.stack([tensor.permute(1, 2, 0) for tensor in tensors]).permute(0, 3, 1, 2)
    return torch.stack(tensors)
