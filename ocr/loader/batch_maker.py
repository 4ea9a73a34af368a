"""How one batch is made: from items and a collate function, slot by slot, or as a view of the cache."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

import torch

from ocr.errors import ConfigError, DataError
from ocr.loader.buffers import BatchBuffer, BufferPool
from ocr.loader.protocol import CachedBatch, IndexedPages, ItemDataset, LoadableDataset, MayPad, Pages
from ocr.pipeline.batch import Batch, Item, Slot, collate, in_shape, lists, same_maps
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets

Collate = Callable[[list[Item | None]], Batch | None]
Finish = Callable[[Batch], Batch]
"""Applied to every batch in the thread that made it: brings it to the device."""


class Pending:
    """One batch in the making."""

    def __init__(self, indices: Sequence[int], epoch: int | None = None) -> None:
        self.indices, self.epoch = indices, epoch
        self.shape: tuple[int, int] | None = getattr(indices, "shape", None)
        """The (height, width) of the batch, if pages keep their own shape."""
        self.outgrown = False
        """Whether a page turned out to be larger than the batch."""
        self.items: list[Item | None] = [None] * len(indices)
        self.outcomes: list[str] | None = None
        """How each sample got into the cache, if the batch will be a view of it; "" for a skipped one."""
        self.left = len(indices)
        self.buffer: BatchBuffer | None = None
        self.batch: Batch | None = None
        self.error: BaseException | None = None
        self.begun = False
        """Whether it is known which samples must be made."""
        self.done = False

    def fail(self, error: BaseException) -> None:
        """Note the first error."""
        self.error = self.error or error


class BatchMaker(ABC):
    """Makes the batches of one dataset, one sample per call, in any threads."""

    def __init__(self, finish: Finish | None) -> None:
        self.finish = finish
        self._lock = threading.Lock()

    def begin(self, pending: Pending) -> bool:
        """Whether the batch is done at once, without making samples."""
        return False

    def make(self, pending: Pending, position: int) -> bool:
        """Make one sample of the batch; with the last of them make the batch and return true."""
        self._make_sample(pending, position)
        with self._lock:
            pending.left -= 1
            if pending.left:
                return False
        self._assemble(pending)
        self._deliver(pending)
        return True

    @abstractmethod
    def end_pass(self, following: Callable[[], Sequence[int]] | None = None) -> None:
        """Called when every batch is made; `following` gives the samples of the first batch of the next pass."""

    @abstractmethod
    def name(self, index: int) -> str:
        """The file name of a sample, "" if unknown."""

    @abstractmethod
    def _make_sample(self, pending: Pending, position: int) -> None: ...

    @abstractmethod
    def _assemble(self, pending: Pending) -> None: ...

    def _deliver(self, pending: Pending) -> None:
        if self.finish is not None and pending.batch is not None:
            pending.batch = self.finish(pending.batch)


class ItemBatchMaker(BatchMaker):
    """Makes batches of any dataset from its items, with a collate function."""

    def __init__(self, dataset: ItemDataset | Pages, collate_fn: Collate, finish: Finish | None) -> None:
        super().__init__(finish)
        self.dataset, self.collate = dataset, collate_fn

    def end_pass(self, following: Callable[[], Sequence[int]] | None = None) -> None:
        if isinstance(self.dataset, IndexedPages):
            self.dataset.settle()

    def name(self, index: int) -> str:
        return self.dataset.name(index) if isinstance(self.dataset, Pages) else ""

    def _make_sample(self, pending: Pending, position: int) -> None:
        index = pending.indices[position]
        if isinstance(self.dataset, Pages):
            pending.items[position] = in_shape(self.dataset.item(index, pending.epoch), pending.shape)
        else:
            pending.items[position] = self.dataset[index]

    def _assemble(self, pending: Pending) -> None:
        pending.batch = self.collate(pending.items)


class SlotBatchMaker(BatchMaker):
    """Makes batches by writing each sample into its slot of a buffer."""

    def __init__(self, dataset: Pages, finish: Finish | None) -> None:
        super().__init__(finish)
        self.dataset = dataset
        self.buffers = BufferPool(dataset.padding if isinstance(dataset, MayPad) else None)

    def end_pass(self, following: Callable[[], Sequence[int]] | None = None) -> None:
        pass

    def name(self, index: int) -> str:
        return self.dataset.name(index)

    def _make_sample(self, pending: Pending, position: int) -> None:
        pending.items[position] = self._item(pending, position)

    def _item(self, pending: Pending, position: int) -> Item | None:
        index = pending.indices[position]
        return self.dataset.write(index, lambda sample: self._slot(pending, position, sample), pending.epoch)

    def _assemble(self, pending: Pending) -> None:
        if pending.outgrown:
            self._make_larger(pending)
        present = [(position, item) for position, item in enumerate(pending.items) if item is not None]
        if present and pending.buffer is not None:
            tensors = pending.buffer.batch([position for position, _ in present])
            pending.batch = tensors | lists([item for _, item in present])
        pending.buffer = None

    def _make_larger(self, pending: Pending) -> None:
        """Make all samples again: a stage or an edit gave one of them another size than was planned."""
        pending.buffer, pending.outgrown = None, False
        for position, item in enumerate(pending.items):
            if item is not None:
                pending.items[position] = self._item(pending, position)

    def _slot(self, pending: Pending, position: int, sample: Sample) -> Slot:
        normalize = self.dataset.transform.host_normalization
        with self._lock:
            if pending.buffer is None:
                pending.buffer = self.buffers.take(len(pending.indices), sample, normalize, pending.shape)
            buffer = pending.buffer
            if buffer.holds(sample):
                return buffer.slot(position)
            pending.outgrown, pending.shape = True, buffer.shape_with(sample)
        return self.buffers.take(1, sample, normalize, pending.shape).slot(0)


class CacheBatchMaker(SlotBatchMaker):
    """Makes batches as views of the cache if possible, or else slot by slot."""

    def __init__(self, dataset: IndexedPages, finish: Finish | None) -> None:
        super().__init__(dataset, finish)
        self.pages = dataset
        self._next_pass: tuple[Sequence[int], CachedBatch] | None = None
        """The first batch of the next pass."""

    def begin(self, pending: Pending) -> bool:
        if not self._has_views or pending.shape is not None:
            return False
        indices, cached = self._next_pass or ((), None)
        self._next_pass = None
        is_ready = indices == pending.indices and self.pages.is_current(indices)
        if self._view(pending, cached if is_ready else self.pages.peek(pending.indices)):
            self._deliver(pending)
            return True
        if self.pages.can_view(pending.indices):
            pending.outcomes = [""] * len(pending.indices)
        return False

    def end_pass(self, following: Callable[[], Sequence[int]] | None = None) -> None:
        self.pages.settle()
        # If something is wrong with a page, the next pass raises it.
        with suppress(DataError):
            if following is not None and self._has_views:
                indices = following()
                cached = self.pages.peek(indices)
                self._next_pass = None if cached is None else (indices, cached)

    @property
    def _has_views(self) -> bool:
        # A copy into pinned memory reaches the device sooner than a view.
        return not self.buffers.pinned

    def _make_sample(self, pending: Pending, position: int) -> None:
        if pending.outcomes is not None:
            pending.outcomes[position] = self.pages.keep(pending.indices[position])
        else:
            super()._make_sample(pending, position)

    def _assemble(self, pending: Pending) -> None:
        if pending.outcomes is None:
            super()._assemble(pending)
            return
        cached = self.pages.peek(pending.indices) if all(pending.outcomes) else None
        if not self._view(pending, cached):
            # Pages were skipped, or the cache is full: the batch is copied after all.
            for position, outcome in enumerate(pending.outcomes):
                pending.items[position] = self._item(pending, position) if outcome else None
            super()._assemble(pending)
        self.pages.ledger.note_cached(pending.indices, pending.outcomes)

    def _view(self, pending: Pending, cached: CachedBatch | None) -> bool:
        if cached is None:
            return False
        pending.batch, rows = cached
        self.pages.ledger.note(pending.indices, rows)
        return True


@runtime_checkable
class DrawsMaps(Protocol):
    """A collate function that draws the maps of items that have none."""

    @property
    def targets(self) -> Targets: ...


class OwnCollate:
    """Collates with the maps of the dataset itself, or else with default ones."""

    def __init__(self, dataset: LoadableDataset) -> None:
        self.targets = dataset.targets if isinstance(dataset, Pages) else Targets()

    def __call__(self, items: list[Item | None]) -> Batch | None:
        for item in items:
            if item is not None and not (isinstance(item, dict) and isinstance(item.get("image"), torch.Tensor)):
                raise ConfigError(
                    f"an item is {type(item).__name__}, not a page with an image. Pass the function that makes a batch "
                    "of items, such as collate_fn=torch.utils.data.default_collate",
                    setting="collate_fn",
                    value=type(item).__name__,
                )
        return collate(items, self.targets)


def choose_maker(dataset: LoadableDataset, collate_fn: Collate | None, finish: Finish | None) -> BatchMaker:
    """Pages are written into slots, unless the collate function needs other maps than the dataset draws."""
    if not isinstance(dataset, Pages) or not (collate_fn is None or accepts_maps(collate_fn, dataset.targets)):
        return ItemBatchMaker(dataset, collate_fn or OwnCollate(dataset), finish)
    if not isinstance(dataset, IndexedPages) and isinstance(dataset, MayPad) and dataset.padding is not None:
        # The pages of a stream are known when they are made: the largest is the size of their batch.
        return ItemBatchMaker(dataset, OwnCollate(dataset), finish)
    return CacheBatchMaker(dataset, finish) if isinstance(dataset, IndexedPages) else SlotBatchMaker(dataset, finish)


def accepts_maps(collate_fn: object, targets: Targets) -> bool:
    """Whether a collate function would draw the same maps."""
    return isinstance(collate_fn, DrawsMaps) and same_maps(targets, collate_fn.targets)
