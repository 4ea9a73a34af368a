"""workers: threads that make the batches of one pass: in order, no further ahead than allowed, one sample at a time."""

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

from ocr.loader.buffers import BatchMaker, Pending
from ocr.pipeline.batch import Batch

log = logging.getLogger(__name__)
JOIN_SECONDS = 10.0


class Schedule:
    """The open batches of one pass, and the samples of them that no worker has started yet."""

    def __init__(self, plan: Iterator[Sequence[int]], ahead: int, epoch: int) -> None:
        """`plan` gives the samples of each batch; at most `ahead` batches are open at a time."""
        self._plan, self._ahead, self._epoch = plan, ahead, epoch
        self._change = threading.Condition()
        self._open: deque[Pending] = deque()
        self._samples: deque[tuple[Pending, int]] = deque()
        self._planning = self._planned = False
        """Whether a worker is asking for the next batch, and whether all batches were asked for."""
        self.stopped = False

    def next_task(self) -> tuple[Pending, int] | None:
        """A batch and the position of a sample to make; None: nothing is left."""
        while True:
            with self._change:
                while True:
                    if self.stopped:
                        return None
                    if self._samples:
                        return self._samples.popleft()
                    if self._planned:
                        return None  # A worker that leaves early does not delay the end of the pass.
                    if not self._planning and len(self._open) < self._ahead:
                        self._planning = True
                        break
                    self._change.wait()
            self.open_next()

    def open_next(self) -> None:
        """Open the next batch.

        One worker at a time, because batches come in order, and without the lock, because a plan can wait for shards.
        """
        pending = None
        try:
            indices = next(self._plan, None)
            pending = None if indices is None else Pending(indices, self._epoch)
        except BaseException as error:
            pending = Pending((), self._epoch)
            pending.fail(error)
            pending.done = True
        with self._change:
            self._planning = False
            self._planned = pending is None or pending.done or not length_hint(self._plan, 1)
            if pending is not None:
                self._open.append(pending)
                self._samples.extend((pending, position) for position in range(len(pending.indices)))
            self._change.notify_all()

    def finish(self, pending: Pending) -> None:
        """A batch is complete, or has failed."""
        with self._change:
            pending.done = True
            self._change.notify_all()

    def take(self, alarm_seconds: float, alarm: Callable[[float], None]) -> Pending | None:
        """Wait for the next batch, in order; None at the end. `alarm` is called while the wait is too long."""
        waited_since = time.monotonic()
        with self._change:
            while not (self._open and self._open[0].done):
                if self._planned and not self._open:
                    return None
                if not self._change.wait(alarm_seconds):
                    alarm(time.monotonic() - waited_since)
            self._change.notify_all()
            return self._open.popleft()

    def stop(self) -> None:
        """Give out no more tasks."""
        with self._change:
            self.stopped = True
            self._samples.clear()
            self._change.notify_all()


class WorkerPool:
    """The threads of one pass."""

    def __init__(
        self,
        plan: Iterator[Sequence[int]],
        maker: BatchMaker,
        workers: int,
        ahead: int,
        alarm_seconds: float,
        epoch: int,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`plan` gives the samples of each batch; `at_end` is called when all of them are made."""
        self._schedule = Schedule(plan, ahead, epoch)
        self._maker, self._alarm_seconds, self._at_end = maker, alarm_seconds, at_end
        self._busy: dict[int, tuple[int, float]] = {}
        """Of each worker the sample it makes, and since when."""
        self._ended = {number: threading.Event() for number in range(workers)}
        self._at_work = workers
        self._lock = threading.Lock()
        _pools.add(self)
        # Here, before worker threads compete for the GIL: the consumer waits for nothing but the first batch.
        self._schedule.open_next()
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
                self._at_end()
        finally:
            self._ended[number].set()

    def _do(self, number: int, pending: Pending, position: int) -> None:
        try:
            self._busy[number] = pending.indices[position], time.monotonic()
            if self._maker.make(pending, position):
                self._schedule.finish(pending)
        except BaseException as error:
            pending.fail(error)
            self._schedule.finish(pending)
        finally:
            self._busy.pop(number, None)

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
