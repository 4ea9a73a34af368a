"""Batch buffers: samples are written straight into their slots, and a buffer that is no longer referenced is reused."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.pipeline.batch import Batch, Slot, stacked
from ocr.pipeline.device import Normalize
from ocr.pipeline.padding import Padding, rounded_up
from ocr.pipeline.sample import Maps, Sample

MAX_KEPT = 8
"""Buffers that are kept for reuse; more are in flight only if the user holds batches for longer."""


class BatchBuffer:
    """The arrays of one batch, one slot per sample."""

    def __init__(
        self, size: int, height: int, width: int, dtype: np.dtype[Any], pinned: bool, padding: Padding | None = None
    ) -> None:
        """With `padding`, pages may be smaller than their slots."""
        self.key = (size, height, width, dtype)
        self.padding = padding
        self.is_being_filled = True
        self._handed_out: list[weakref.ref[NDArray[Any]]] = []
        """The arrays that the tensors of the last batch were made of."""
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
        return Slot(image, Maps(*maps), self.padding)

    def batch(self, positions: list[int]) -> Batch:
        """The tensors of the samples at these positions: views of the whole buffer, or copies if some are missing."""
        if len(positions) == self.key[0]:
            # Fresh views: each belongs to its tensor alone, and dies with the last tensor or array that shares it.
            arrays = {name: array.view() for name, array in self.arrays.items()}
            self._handed_out = [weakref.ref(array) for array in arrays.values()]
        else:
            arrays = {name: array[positions] for name, array in self.arrays.items()}
            self._handed_out = []
        batch = stacked(arrays)
        self.is_being_filled = False
        return batch

    def is_idle(self) -> bool:
        """Whether no tensor refers to this buffer."""
        return not self.is_being_filled and all(array() is None for array in self._handed_out)

    def holds(self, sample: Sample) -> bool:
        """Whether a page fits; raises if it must have the size of its batch, and has not."""
        _, height, width, _ = self.key
        if self.padding is not None:
            return sample.size[0] <= width and sample.size[1] <= height
        if sample.size != (width, height):
            raise ConfigError(
                f"{sample.filename} is {sample.size[0]}x{sample.size[1]} in a batch of {width}x{height}. End the fixed "
                "transforms with a Letterbox(size)",
                setting="transforms.letterbox",
                value=sample.size,
                path=sample.path,
            )
        return True

    def shape_with(self, sample: Sample) -> tuple[int, int]:
        """The (height, width) of a batch that holds a larger page too."""
        _, height, width, _ = self.key
        return rounded_up(max(height, sample.size[1]), max(width, sample.size[0]))


class BufferPool:
    """The batch buffers of one loader."""

    def __init__(self, padding: Padding | None = None) -> None:
        self._padding = padding
        self._kept: list[BatchBuffer] = []
        self._lock = threading.Lock()
        # Torch itself reuses pinned memory, and knows when a copy to the device is over.
        self.pinned = torch.cuda.is_available()

    def take(
        self, size: int, sample: Sample, normalize: Normalize | None, shape: tuple[int, int] | None = None
    ) -> BatchBuffer:
        """A buffer for a batch of pages like this one, with the (height, width) `shape` if they are padded."""
        dtype = sample.image.dtype
        if dtype == np.uint8 and normalize is not None:
            dtype = np.dtype(np.float32)
        width, height = sample.size
        if self._padding is not None:
            height, width = shape or rounded_up(height, width)
        key = (size, height, width, dtype)
        if self.pinned:
            return BatchBuffer(*key, pinned=True, padding=self._padding)
        with self._lock:
            for buffer in self._kept:
                if buffer.key == key and buffer.is_idle():
                    buffer.is_being_filled = True
                    return buffer
            buffer = BatchBuffer(*key, pinned=False, padding=self._padding)
            self._kept = [*self._kept, buffer][-MAX_KEPT:]
        return buffer


def _pinned_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return torch.empty(shape, dtype=kind, pin_memory=True).numpy()
