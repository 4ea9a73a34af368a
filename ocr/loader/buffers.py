"""Memory of batches: samples are written straight into their slots, and a batch that nobody holds is used again."""

from __future__ import annotations

import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.pipeline.batch import Batch, stacked
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import Maps, Sample

MOST_KEPT = 8
"""Batches that are kept for use again; more are in flight only where the user holds them, and these come back late."""


class Slot(NamedTuple):
    """The place of one sample in its batch."""

    image: NDArray[Any]
    maps: Maps

    def write_page(self, image_hwc: NDArray[Any], normalize: Normalize | None) -> None:
        """Copy the page, or normalise it on the way."""
        if self.image.dtype == np.uint8:
            np.copyto(self.image, image_hwc)
        elif image_hwc.dtype == np.uint8 and normalize is not None:
            normalize.on_host(image_hwc, self.image)
        else:
            np.copyto(self.image, image_hwc.transpose(2, 0, 1))

    def write_maps(self, maps: Maps) -> None:
        """Copy maps that were drawn elsewhere."""
        for target, array in zip(self.maps, maps, strict=True):
            np.copyto(target, array)


class BatchMemory:
    """The arrays of one batch, an element a slot."""

    def __init__(self, size: int, height: int, width: int, dtype: np.dtype[Any], pinned: bool) -> None:
        self.key = (size, height, width, dtype)
        self.in_the_making = True
        page = (height, width, 3) if dtype == np.uint8 else (3, height, width)
        kinds: tuple[Any, ...] = (dtype, np.float32, np.float32, np.bool_, np.bool_)
        shapes = ((size, *page), *[(size, height, width)] * 4)
        self.arrays: dict[str, NDArray[Any]] = {
            name: _pinned_array(shape, kind) if pinned else np.empty(shape, kind)
            for name, shape, kind in zip(("image", *Maps._fields), shapes, kinds, strict=True)
        }

    def slot(self, position: int) -> Slot:
        """Where to write a sample."""
        image, *maps = (array[position] for array in self.arrays.values())
        return Slot(image, Maps(*maps))

    def batch(self, positions: list[int]) -> Batch:
        """The tensors of the samples that are there: all of the memory, or copies where some are missing."""
        whole = len(positions) == self.key[0]
        batch = stacked(self.arrays if whole else {name: array[positions] for name, array in self.arrays.items()})
        self.in_the_making = False
        return batch

    def is_idle(self) -> bool:
        """Whether nobody holds a tensor of this memory: each of them holds its array."""
        # The dictionary's, the loop's and the function's own.
        return not self.in_the_making and all(sys.getrefcount(array) <= 3 for array in self.arrays.values())


class MemoryPool:
    """Batch memory for one loader."""

    def __init__(self) -> None:
        self._kept: list[BatchMemory] = []
        self._lock = threading.Lock()
        # Torch itself keeps pinned memory, and knows when a copy to the device is over.
        self.pinned = torch.cuda.is_available()

    def take(self, size: int, sample: Sample, normalize: Normalize | None) -> BatchMemory:
        """Memory for a batch of pages like this one."""
        dtype = sample.image.dtype
        if dtype == np.uint8 and normalize is not None:
            dtype = np.dtype(np.float32)
        width, height = sample.size
        key = (size, height, width, dtype)
        if self.pinned:
            return BatchMemory(*key, pinned=True)
        with self._lock:
            for memory in self._kept:
                if memory.key == key and memory.is_idle():
                    memory.in_the_making = True
                    return memory
            memory = BatchMemory(*key, pinned=False)
            self._kept = [*self._kept, memory][-MOST_KEPT:]
        return memory


def check_size(memory: BatchMemory, sample: Sample) -> None:
    """Raise where a page has another size than its batch."""
    _, height, width, _ = memory.key
    if sample.size != (width, height):
        raise ConfigError(
            f"{sample.filename} is {sample.size[0]}x{sample.size[1]} in a batch of {width}x{height}: end the fixed "
            "transforms with a Letterbox(size)"
        )


def _pinned_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return torch.empty(shape, dtype=kind, pin_memory=True).numpy()
