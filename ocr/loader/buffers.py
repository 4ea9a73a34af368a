"""buffers: batches in the making, whose samples are written straight into their slots, or are items to collate.

A buffer is reused when no tensor uses it.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ocr.errors import ConfigError
from ocr.pipeline.batch import Batch, Item, Padding, Slot, in_shape, listed, lists, stacked
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.path import PagePath
from ocr.pipeline.sample import Array, Sample, rounded_up
from ocr.pipeline.targets import MAPS, StoredTargets, Targets, unit_axis

Collate = Callable[[list[Item | None]], Batch | None]
Finish = Callable[[Batch], Batch]
"""Applied to every batch in the thread that made it: brings it to the device."""
MAX_KEPT = 8
"""Buffers that are kept for reuse; more are in flight only if the user holds batches for longer."""


class BatchBuffer:
    """The arrays of one batch, one slot per sample."""

    def __init__(
        self,
        size: int,
        height: int,
        width: int,
        dtype: np.dtype[Any],
        pinned: bool,
        padding: Padding | None = None,
        units: Sequence[str] = (),
    ) -> None:
        """With `padding`, pages can be smaller than their slots; `units` are those that have maps."""
        self.key = (size, height, width, dtype)
        self.padding = padding
        self.is_being_filled = True
        self._handed_out: list[weakref.ref[Array]] = []
        """The arrays that the tensors of the last batch were made of."""
        new = _pinned_array if pinned else np.empty
        page = (height, width, 3) if dtype == np.uint8 else (3, height, width)
        self.image: Array = new((size, *page), dtype)
        shape = (size, *unit_axis(units), height, width)
        self.maps: dict[str, Array] = {name: new(shape, spec.dtype) for name, spec in MAPS.items()}

    def slot(self, position: int) -> Slot:
        """Where to write a sample."""
        return Slot(self.image[position], {name: array[position] for name, array in self.maps.items()}, self.padding)

    def batch(self, positions: Sequence[int]) -> Batch:
        """The tensors of the samples at these positions: views of the whole buffer, or copies if some are missing."""
        arrays = {"image": self.image, **self.maps}
        self._handed_out = []
        if len(positions) == self.key[0]:
            # Fresh views: each belongs to its tensor alone, and dies with the last tensor or array that shares it.
            arrays = {name: array.view() for name, array in arrays.items()}
            self._handed_out = [weakref.ref(array) for array in arrays.values()]
        else:
            arrays = {name: array[list(positions)] for name, array in arrays.items()}
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

    def __init__(self, padding: Padding | None = None, units: Sequence[str] = ()) -> None:
        self._padding, self._units = padding, units
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
            return BatchBuffer(*key, pinned=True, padding=self._padding, units=self._units)
        with self._lock:
            for buffer in self._kept:
                if buffer.key == key and buffer.is_idle():
                    buffer.is_being_filled = True
                    return buffer
            buffer = BatchBuffer(*key, pinned=False, padding=self._padding, units=self._units)
            self._kept = [*self._kept, buffer][-MAX_KEPT:]
        return buffer


def _pinned_array(shape: tuple[int, ...], dtype: Any) -> Array:
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return torch.empty(shape, dtype=kind, pin_memory=True).numpy()


class Pending:
    """One batch in the making."""

    def __init__(self, indices: Sequence[int], epoch: int) -> None:
        self.indices, self.epoch = indices, epoch
        self.shape: tuple[int, int] | None = getattr(indices, "shape", None)
        """The (height, width) of the batch, if pages keep their own shape."""
        self.items: list[Item | None] = [None] * len(indices)
        self.buffer: BatchBuffer | None = None
        self.outgrown = False
        """Whether a page turned out to be larger than the batch."""
        self.left = len(indices)
        self.batch: Batch | None = None
        self.error: BaseException | None = None
        self.done = False

    def fail(self, error: BaseException) -> None:
        """Note the first error."""
        self.error = self.error or error


class BatchMaker(ABC):
    """Makes the batches of one dataset, one sample per call, in any threads."""

    def __init__(self, finish: Finish | None) -> None:
        self.finish = finish
        self.lock = threading.Lock()

    def make(self, pending: Pending, position: int) -> bool:
        """Make one sample of the batch; with the last of them make the batch and return true."""
        self.make_sample(pending, position)
        with self.lock:
            pending.left -= 1
            if pending.left:
                return False
        self.assemble(pending)
        if self.finish is not None and pending.batch is not None:
            pending.batch = self.finish(pending.batch)
        return True

    @abstractmethod
    def name(self, index: int) -> str:
        """The file name of a sample, "" if unknown."""

    @abstractmethod
    def make_sample(self, pending: Pending, position: int) -> None:
        """Make one sample of a batch."""

    @abstractmethod
    def assemble(self, pending: Pending) -> None:
        """Every sample is made: make the batch of them."""


class ItemBatches(BatchMaker):
    """Makes batches of any dataset from its items, with a collate function."""

    def __init__(self, dataset: Any, collate_fn: Collate, finish: Finish | None) -> None:
        super().__init__(finish)
        self.dataset, self.collate = dataset, collate_fn
        self._has_pages = hasattr(dataset, "item") and hasattr(dataset, "path")

    def name(self, index: int) -> str:
        return str(self.dataset.name(index)) if self._has_pages else ""

    def make_sample(self, pending: Pending, position: int) -> None:
        index = pending.indices[position]
        if self._has_pages:
            pending.items[position] = in_shape(self.dataset.item(index, pending.epoch), pending.shape)
        else:
            pending.items[position] = self.dataset[index]

    def assemble(self, pending: Pending) -> None:
        pending.batch = self.collate(pending.items)


class PageBatches(BatchMaker):
    """Makes batches of pages: each takes its path into a slot of a buffer."""

    def __init__(self, path: PagePath, finish: Finish | None) -> None:
        super().__init__(finish)
        self.path = path
        self.buffers = BufferPool(path.padding, path.drawn.units)

    def name(self, index: int) -> str:
        return self.path.source.names[index]

    def make_sample(self, pending: Pending, position: int) -> None:
        sample = self.path.write(pending.indices[position], pending.epoch, _Place(self, pending, position))
        pending.items[position] = None if sample is None else listed(sample)

    def assemble(self, pending: Pending) -> None:
        if pending.outgrown:
            # A stage or an edit gave a page another size than was planned: all are made again, in a larger batch.
            pending.buffer, pending.outgrown = None, False
            for position, item in enumerate(pending.items):
                if item is not None:
                    self.make_sample(pending, position)
        present = [(position, item) for position, item in enumerate(pending.items) if item is not None]
        if present and pending.buffer is not None:
            pending.batch = self.batch_of(pending, present)
        pending.buffer = None

    def batch_of(self, pending: Pending, present: Sequence[tuple[int, Item]]) -> Batch:
        """The batch of the samples at these positions, whose slots were written."""
        assert pending.buffer is not None
        return pending.buffer.batch([position for position, _ in present]) | lists([item for _, item in present])

    def slot(self, pending: Pending, position: int, sample: Sample, normalize: Normalize | None) -> Slot:
        """The slot of a sample: of its batch, or one that is thrown away if the sample outgrows the batch."""
        with self.lock:
            if pending.buffer is None:
                pending.buffer = self.buffers.take(len(pending.indices), sample, normalize, pending.shape)
            buffer = pending.buffer
            if buffer.holds(sample):
                return buffer.slot(position)
            height, width = buffer.shape_with(sample)
            if pending.outgrown and pending.shape is not None:  # By another page of the batch, too.
                height, width = max(height, pending.shape[0]), max(width, pending.shape[1])
            pending.outgrown, pending.shape = True, (height, width)
        return self.buffers.take(1, sample, normalize, pending.shape).slot(0)


class _Place:
    """The place of a sample in a batch, whose memory is taken when the first sample's size is known."""

    def __init__(self, maker: PageBatches, pending: Pending, position: int) -> None:
        self._maker, self._pending, self._position = maker, pending, position

    def write(self, sample: Sample, normalize: Normalize | None, targets: Targets | StoredTargets) -> Sample:
        slot = self._maker.slot(self._pending, self._position, sample, normalize)
        return slot.write(sample, normalize, targets)
