"""Threads that make the batches of one pass over a dataset."""

from __future__ import annotations

import _thread
import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence

from ocr.loader.batch_maker import BatchMaker, Pending
from ocr.loader.schedule import Schedule
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
        epoch: int | None = None,
    ) -> None:
        """`plan` gives the samples of each batch, `following` those of the first batch of the next pass.

        Samples are drawn for `epoch`; None: for the epoch that the dataset is set to.
        """
        self._schedule = Schedule(plan, ahead, epoch)
        self._maker, self._alarm_seconds, self._following = maker, alarm_seconds, following
        self._busy: dict[int, tuple[int, float]] = {}
        """Of each worker the sample it makes, and since when."""
        self._ended = {number: threading.Event() for number in range(workers)}
        self._at_work = workers
        self._lock = threading.Lock()
        _pools.add(self)
        # Here, before worker threads compete for the GIL: the consumer waits for nothing but the first batch.
        self._begin_next()
        for number in self._ended:
            # Thread.start() waits until the thread runs, which then holds the GIL for milliseconds.
            _thread.start_new_thread(self._work, (number,))

    def batches(self) -> Iterator[Batch | None]:
        """Each batch as soon as it is done; raises the error of the first sample that failed in it."""
        while (pending := self._schedule.take(self._alarm_seconds, self._warn)) is not None:
            if pending.error is not None:
                raise pending.error
            batch = pending.batch
            del pending  # The consumer decides how long the batch lives.
            yield batch

    def close(self) -> None:
        """Stop the threads, each after its current sample."""
        self._schedule.stop()
        for number, ended in self._ended.items():
            if not ended.wait(JOIN_SECONDS):
                log.warning("worker %d does not stop: it is %s", number, self._describe(number))
        _pools.discard(self)

    def is_running(self) -> bool:
        """Whether a thread has not ended."""
        return not all(ended.is_set() for ended in self._ended.values())

    def _work(self, number: int) -> None:
        try:
            while (task := self._schedule.next_task()) is not None:
                self._do(number, *task)
                del task
            with self._lock:
                self._at_work -= 1
                is_last = not self._at_work
            if is_last and not self._schedule.stopped:
                self._maker.end_pass(self._following)
        finally:
            self._ended[number].set()

    def _do(self, number: int, pending: Pending | None, position: int) -> None:
        if pending is None:
            self._begin_next()
            return
        try:
            self._busy[number] = pending.indices[position], time.monotonic()
            if self._maker.make(pending, position):
                self._schedule.finish(pending)
        except BaseException as error:
            pending.fail(error)
            self._schedule.finish(pending)
        finally:
            self._busy.pop(number, None)

    def _begin_next(self) -> None:
        pending = self._schedule.open_next()
        if pending is None:
            return
        try:
            done = self._maker.begin(pending)
        except BaseException as error:
            pending.fail(error)
            done = True
        self._schedule.begun(pending, done)

    def _warn(self, seconds: float) -> None:
        tasks = ", ".join(f"worker {number} is {self._describe(number)}" for number in self._ended)
        log.warning("waiting for a batch for %.0f s: %s", seconds, tasks)

    def _describe(self, number: int) -> str:
        busy = self._busy.get(number)
        if busy is None:
            return "idle"
        index, since = busy
        return f"at sample {index} {self._maker.name(index)} for {time.monotonic() - since:.0f} s"


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that still decodes during interpreter shutdown would crash it."""
    for pool in list(_pools):
        pool.close()
