"""How one batch comes about: as a view of what is stored, slot by slot, or from items and a collate function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import DataError
from ocr.loader.buffers import BatchMemory, MemoryPool, Slot, check_size
from ocr.pipeline.batch import Batch, Item, lists
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import Sample

Kept = tuple[Batch, NDArray[np.int32]]
"""A batch that is a view of the cache, and what to note of its samples."""


class Pending:
    """One batch in the making."""

    def __init__(self, indices: Sequence[int]) -> None:
        self.indices = indices
        self.items: list[Item | None] = [None] * len(indices)
        self.outcomes: list[str] | None = None
        """How each sample got into the cache, where the batch will be a view of it; "" for one that is skipped."""
        self.left = len(indices)
        self.memory: BatchMemory | None = None
        self.batch: Batch | None = None
        self.error: BaseException | None = None
        self.done = False


class BatchMaker:
    """Makes the batches of one dataset."""

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Item | None]], Batch | None] | None,
        finish: Callable[[Batch], Batch] | None,
    ) -> None:
        self.dataset, self.collate, self.finish = dataset, collate, finish
        self.memories = MemoryPool()
        self._lock = threading.Lock()
        self._ahead: tuple[Sequence[int], Kept] | None = None

    def begin(self, pending: Pending) -> bool:
        """Whether the batch is there at once."""
        if not self._has_views:
            return False
        indices, kept = self._ahead or ((), None)
        self._ahead = None
        if self._view(pending, kept if indices == pending.indices else self.dataset.peek(pending.indices)):
            self._deliver(pending)
            return True
        if self.dataset.can_view(pending.indices):
            pending.outcomes = [""] * len(pending.indices)
        return False

    def end_pass(self, following: Callable[[], Sequence[int]] | None = None) -> None:
        """Everything is made: count it, and have the first batch of the next pass at hand, if it is a view."""
        if hasattr(self.dataset, "settle"):
            self.dataset.settle()
        # Whatever is wrong with a page is told to who asks for it.
        with suppress(DataError):
            if following is not None and self._has_views:
                indices = following()
                kept = self.dataset.peek(indices)
                self._ahead = None if kept is None else (indices, kept)

    @property
    def _has_views(self) -> bool:
        # A copy into pinned memory reaches the device sooner than a view.
        return self.collate is None and not self.memories.pinned

    def _view(self, pending: Pending, kept: Kept | None) -> bool:
        if kept is None:
            return False
        pending.batch, notes = kept
        self.dataset.ledger.note(pending.indices, notes)
        return True

    def make(self, pending: Pending, position: int) -> bool:
        """Make one sample of the batch, and the batch with the last of them: then true."""
        index = pending.indices[position]
        if pending.outcomes is not None:
            pending.outcomes[position] = self.dataset.keep(index)
        else:
            pending.items[position] = self._item(pending, position)
        with self._lock:
            pending.left -= 1
            if pending.left:
                return False
        self._assemble(pending)
        self._deliver(pending)
        return True

    def _item(self, pending: Pending, position: int) -> Item | None:
        index = pending.indices[position]
        item: Item | None = (
            self.dataset[index]
            if self.collate is not None
            else self.dataset.write(index, lambda sample: self._slot(pending, position, sample))
        )
        return item

    def _assemble(self, pending: Pending) -> None:
        if self.collate is not None:
            pending.batch = self.collate(pending.items)
            return
        if pending.outcomes is not None:
            kept = self.dataset.peek(pending.indices) if all(pending.outcomes) else None
            if not self._view(pending, kept):
                # Skipped pages, a full cache or one whose slot was taken: copied after all.
                for position, outcome in enumerate(pending.outcomes):
                    pending.items[position] = self._item(pending, position) if outcome else None
            self.dataset.ledger.note_cached(pending.indices, pending.outcomes)
            if pending.batch is not None:
                return
        present = [(place, item) for place, item in enumerate(pending.items) if item is not None]
        if present and pending.memory is not None:
            tensors = pending.memory.batch([place for place, _ in present])
            pending.batch = tensors | lists([item for _, item in present])
        pending.memory = None

    def _deliver(self, pending: Pending) -> None:
        if self.finish is not None and pending.batch is not None:
            pending.batch = self.finish(pending.batch)

    def _slot(self, pending: Pending, position: int, sample: Sample) -> Slot:
        normalize: Normalize | None = self.dataset.transform.host_normalization
        with self._lock:
            if pending.memory is None:
                pending.memory = self.memories.take(len(pending.indices), sample, normalize)
        check_size(pending.memory, sample)
        return pending.memory.slot(position)
