"""What workers do next: batches in order, no further ahead than allowed, samples of a batch in any worker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import length_hint

from ocr.loader.batch_maker import Pending


class Schedule:
    """The open batches of one pass, and the samples of them that no worker has started yet."""

    def __init__(self, plan: Iterator[Sequence[int]], ahead: int, epoch: int | None = None) -> None:
        """`plan` gives the samples of each batch; at most `ahead` batches are open at a time."""
        self._plan, self._ahead, self._epoch = plan, ahead, epoch
        self._change = threading.Condition()
        self._open: deque[Pending] = deque()
        self._samples: deque[tuple[Pending, int]] = deque()
        self._planning = self._planned = False
        """Whether a worker is asking for the next batch, and whether all batches were asked for."""
        self.stopped = False

    def next_task(self) -> tuple[Pending | None, int] | None:
        """A batch and the position of a sample to make; (None, 0): open the next batch; None: nothing is left."""
        with self._change:
            while not self.stopped:
                if self._samples:
                    return self._samples.popleft()
                if not (self._planned or self._planning) and len(self._open) < self._ahead:
                    self._planning = True
                    return None, 0
                if self._planned and all(pending.begun for pending in self._open):
                    break  # A worker that leaves early does not delay the end of the pass.
                self._change.wait()
        return None

    def open_next(self) -> Pending | None:
        """Open the next batch, which `begun` follows; None if there is none, or if the plan failed.

        One worker at a time, because batches come in order, and without the lock, because a plan may wait for shards.
        """
        pending = None
        try:
            indices = next(self._plan, None)
            pending = None if indices is None else Pending(indices, self._epoch)
        except BaseException as error:
            pending = Pending(())
            pending.fail(error)
            pending.begun = pending.done = True
        with self._change:
            self._planning = False
            self._planned = pending is None or pending.done or not length_hint(self._plan, 1)
            if pending is not None:
                self._open.append(pending)
            self._change.notify_all()
        return None if pending is None or pending.done else pending

    def begun(self, pending: Pending, done: bool) -> None:
        """An opened batch is done already, or its samples must be made."""
        with self._change:
            pending.begun, pending.done = True, done
            if not done:
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
