"""Threads that make the batches of one pass over a dataset, in order and no further ahead than allowed."""

from __future__ import annotations

import _thread
import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import DataError
from ocr.pipeline.batch import Batch, Item, lists
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import Sample
from ocr.pipeline.slots import BatchMemory, MemoryPool, Slot, check_size

log = logging.getLogger(__name__)
JOIN_SECONDS = 10.0
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
    """How one batch comes about: as a view of the cache, slot by slot, or from items and a collate function."""

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


class Crew:
    """The threads of one pass."""

    def __init__(
        self,
        plan: Sequence[Sequence[int]],
        maker: BatchMaker,
        workers: int,
        ahead: int,
        alarm_seconds: float,
        following: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        """`following` tells the first batch of the pass after this one, where that is known."""
        self._plan, self._maker, self._ahead, self._alarm_seconds = plan, maker, ahead, alarm_seconds
        self._following = following
        self._change = threading.Condition()
        self._open: deque[Pending] = deque()
        self._tasks: deque[tuple[Pending, int]] = deque()
        self._begun = self._taken = self._leaving = 0
        self._beginning = 0
        """Batches of which it is not known yet whether there is anything to make."""
        self._stopped = False
        self._busy: dict[int, tuple[int, float]] = {}
        self._workers = {number: threading.Event() for number in range(workers)}
        """Each set when its thread has ended."""
        _crews.add(self)
        if plan:
            # At once and here, before others compete for the interpreter: the first batch is all that is waited for.
            self._begin(self._next_pending())
        for number in self._workers:
            # A Thread's start() waits until it runs, and then it runs off with the interpreter for milliseconds.
            _thread.start_new_thread(self._work, (number,))

    def take(self) -> Batch | None:
        """The next batch, as soon as it is there; the error of the first sample that failed in it."""
        waited_since = time.monotonic()
        with self._change:
            while not (self._open and self._open[0].done):
                if not self._change.wait(self._alarm_seconds):
                    self._tell_who_is_busy(time.monotonic() - waited_since)
            pending = self._open.popleft()
            self._taken += 1
            self._change.notify_all()
        if pending.error is not None:
            raise pending.error
        return pending.batch

    def close(self) -> None:
        """Stop the threads, each after the sample it is at."""
        with self._change:
            self._stopped = True
            self._tasks.clear()
            self._change.notify_all()
        for number, ended in self._workers.items():
            if not ended.wait(JOIN_SECONDS):
                log.warning("worker %d does not stop: it is %s", number, self._task_of(number))
        self._open.clear()
        _crews.discard(self)

    def _work(self, number: int) -> None:
        try:
            while (task := self._next_task()) is not None:
                self._do(number, *task)
                del task
            with self._change:
                self._leaving += 1
                is_last = self._leaving == len(self._workers) and not self._stopped
            if is_last:
                self._maker.end_pass(self._following)
        finally:
            self._workers[number].set()

    def _do(self, number: int, pending: Pending, position: int | None) -> None:
        try:
            if position is None:
                self._begin(pending)
                return
            self._busy[number] = pending.indices[position], time.monotonic()
            if self._maker.make(pending, position):
                self._finish(pending)
        except BaseException as error:
            pending.error = pending.error or error
            self._finish(pending)
        finally:
            self._busy.pop(number, None)

    def _next_task(self) -> tuple[Pending, int | None] | None:
        with self._change:
            while not self._stopped:
                if self._tasks:
                    return self._tasks.popleft()
                if self._begun < min(len(self._plan), self._taken + self._ahead):
                    return self._next_pending(), None
                if self._begun == len(self._plan) and not self._beginning:
                    break  # Whoever leaves early need not be waited for in the end.
                self._change.wait()
        return None

    def _next_pending(self) -> Pending:
        pending = Pending(self._plan[self._begun])
        self._begun += 1
        self._beginning += 1
        self._open.append(pending)
        return pending

    def _begin(self, pending: Pending) -> None:
        at_once = False
        try:
            at_once = self._maker.begin(pending)
            if at_once:
                self._finish(pending)
        finally:
            with self._change:
                self._beginning -= 1
                if not at_once:
                    self._tasks.extend((pending, position) for position in range(len(pending.indices)))
                self._change.notify_all()

    def _finish(self, pending: Pending) -> None:
        with self._change:
            pending.done = True
            self._change.notify_all()

    def _tell_who_is_busy(self, seconds: float) -> None:
        tasks = ", ".join(f"worker {number} is {self._task_of(number)}" for number in self._workers)
        log.warning("waiting for a batch for %.0f s: %s", seconds, tasks)

    def _task_of(self, number: int) -> str:
        busy = self._busy.get(number)
        if busy is None:
            return "idle"
        index, since = busy
        source = getattr(self._maker.dataset, "source", None)
        name = source.names[index] if source is not None else ""
        return f"at sample {index} {name} for {time.monotonic() - since:.0f} s"


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that decodes while the interpreter goes down would crash it."""
    for crew in list(_crews):
        crew.close()
