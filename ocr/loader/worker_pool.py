"""Threads that make the batches of one pass over a dataset, in order and no further ahead than allowed."""

from __future__ import annotations

import _thread
import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import length_hint

from ocr.loader.batch_maker import BatchMaker, Pending
from ocr.pipeline.batch import Batch

log = logging.getLogger(__name__)
JOIN_SECONDS = 10.0


class WorkerPool:
    """The threads of one pass."""

    def __init__(
        self,
        plan: Iterator[Sequence[int]],
        maker: BatchMaker,
        workers: int,
        ahead: int,
        alarm_seconds: float,
        following: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        """`plan` tells the samples of each batch; `following` those of the first batch of the pass after this one."""
        self._plan, self._maker, self._ahead, self._alarm_seconds = plan, maker, ahead, alarm_seconds
        self._following = following
        self._change = threading.Condition()
        self._open: deque[Pending] = deque()
        self._tasks: deque[tuple[Pending, int]] = deque()
        self._begun = self._taken = self._leaving = 0
        self._beginning = 0
        """Batches of which it is not known yet whether there is anything to make."""
        self._planning = self._planned = self._stopped = False
        self._busy: dict[int, tuple[int, float]] = {}
        self._workers = {number: threading.Event() for number in range(workers)}
        """Each set when its thread has ended."""
        _pools.add(self)
        # At once and here, before others compete for the interpreter: the first batch is all that is waited for.
        self._begin_next()
        for number in self._workers:
            # A Thread's start() waits until it runs, and then it runs off with the interpreter for milliseconds.
            _thread.start_new_thread(self._work, (number,))

    def batches(self) -> Iterator[Batch | None]:
        """Each batch as soon as it is there; the error of the first sample that failed in it."""
        while (pending := self._take()) is not None:
            if pending.error is not None:
                raise pending.error
            batch = pending.batch
            del pending  # Whoever gets the batch decides how long it lives.
            yield batch

    def _take(self) -> Pending | None:
        waited_since = time.monotonic()
        with self._change:
            while not (self._open and self._open[0].done):
                if self._planned and not self._open:
                    return None
                if not self._change.wait(self._alarm_seconds):
                    self._tell_who_is_busy(time.monotonic() - waited_since)
            self._taken += 1
            self._change.notify_all()
            return self._open.popleft()

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
        _pools.discard(self)

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

    def _do(self, number: int, pending: Pending | None, position: int) -> None:
        if pending is None:
            self._begin_next()
            return
        try:
            self._busy[number] = pending.indices[position], time.monotonic()
            if self._maker.make(pending, position):
                self._finish(pending)
        except BaseException as error:
            pending.error = pending.error or error
            self._finish(pending)
        finally:
            self._busy.pop(number, None)

    def _next_task(self) -> tuple[Pending | None, int] | None:
        """A sample to make, or None and a batch to begin."""
        with self._change:
            while not self._stopped:
                if self._tasks:
                    return self._tasks.popleft()
                if not (self._planned or self._planning) and self._begun < self._taken + self._ahead:
                    self._planning = True
                    return None, 0
                if self._planned and not self._beginning:
                    break  # Whoever leaves early need not be waited for in the end.
                self._change.wait()
        return None

    def _begin_next(self) -> None:
        """One at a time, for batches come in their order; without the lock, for a plan may wait for its shards."""
        pending = None
        try:
            indices = next(self._plan, None)
            pending = None if indices is None else Pending(indices)
        except BaseException as error:
            pending = Pending(())
            pending.error, pending.done = error, True
        with self._change:
            self._planning = False
            self._planned = pending is None or pending.done or not length_hint(self._plan, 1)
            if pending is not None:
                self._open.append(pending)
                self._begun += 1
                self._beginning += not pending.done
            self._change.notify_all()
        if pending is not None and not pending.done:
            try:
                self._begin(pending)
            except BaseException as error:
                pending.error = pending.error or error
                self._finish(pending)

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
        name = source.entry(index).filename if source is not None else ""
        return f"at sample {index} {name} for {time.monotonic() - since:.0f} s"


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that decodes while the interpreter goes down would crash it."""
    for pool in list(_pools):
        pool.close()
