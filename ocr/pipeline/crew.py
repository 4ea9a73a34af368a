"""Threads that make the batches of one pass over a dataset, in order and no further ahead than allowed."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ocr.pipeline.batch import Batch, Item, lists
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import Sample
from ocr.pipeline.slots import BatchMemory, MemoryPool, Slot, check_size

log = logging.getLogger(__name__)
JOIN_SECONDS = 10.0


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

    def begin(self, pending: Pending) -> bool:
        """Whether the batch is there at once."""
        if self.collate is not None or self.memories.pinned:
            return False
        pending.batch = self.dataset.view(pending.indices)
        if pending.batch is not None:
            self._deliver(pending)
            return True
        if self.dataset.can_view(pending.indices):
            pending.outcomes = [""] * len(pending.indices)
        return False

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
            if all(pending.outcomes):
                pending.batch = self.dataset.view(pending.indices, pending.outcomes)
            if pending.batch is not None:
                return
            # Skipped pages, a full cache or one whose slot was taken: copied after all.
            for position, outcome in enumerate(pending.outcomes):
                pending.items[position] = self._item(pending, position) if outcome else None
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
        self, plan: Sequence[Sequence[int]], maker: BatchMaker, workers: int, ahead: int, report: float
    ) -> None:
        self._plan, self._maker, self._ahead, self._alarm_seconds = plan, maker, ahead, report
        self._change = threading.Condition()
        self._open: deque[Pending] = deque()
        self._tasks: deque[tuple[Pending, int]] = deque()
        self._begun = 0
        self._taken = 0
        self._stopped = False
        self._busy: dict[int, tuple[int, float]] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"glyphfeed-loader-{number}", daemon=True)
            for number in range(workers)
        ]
        _crews.add(self)
        for thread in self._threads:
            thread.start()

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
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
            if thread.is_alive():
                log.warning("%s does not stop: it is %s", thread.name, self._task_of(thread.ident or 0))
        self._open.clear()
        _crews.discard(self)

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            pending, position = task
            try:
                if position is None:
                    self._begin(pending)
                else:
                    self._busy[threading.get_ident()] = pending.indices[position], time.monotonic()
                    if self._maker.make(pending, position):
                        self._finish(pending)
            except BaseException as error:
                pending.error = pending.error or error
                self._finish(pending)
            finally:
                self._busy.pop(threading.get_ident(), None)
                del pending, task

    def _next_task(self) -> tuple[Pending, int | None] | None:
        with self._change:
            while not self._stopped:
                if self._tasks:
                    return self._tasks.popleft()
                if self._begun < min(len(self._plan), self._taken + self._ahead):
                    pending = Pending(self._plan[self._begun])
                    self._begun += 1
                    self._open.append(pending)
                    return pending, None
                self._change.wait()
        return None

    def _begin(self, pending: Pending) -> None:
        if self._maker.begin(pending):
            self._finish(pending)
            return
        with self._change:
            self._tasks.extend((pending, position) for position in range(len(pending.indices)))
            self._change.notify_all()

    def _finish(self, pending: Pending) -> None:
        with self._change:
            pending.done = True
            self._change.notify_all()

    def _tell_who_is_busy(self, seconds: float) -> None:
        tasks = ", ".join(f"{thread.name} is {self._task_of(thread.ident or 0)}" for thread in self._threads)
        log.warning("waiting for a batch for %.0f s: %s", seconds, tasks)

    def _task_of(self, thread: int) -> str:
        busy = self._busy.get(thread)
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
