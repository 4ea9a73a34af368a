"""The time that each part of an epoch takes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

PARTS = ("data wait", "forward", "backward", "boxes", "scores")


class Stopwatch:
    """Seconds per part, summed until `reset`.

    Parts are measured on the host: GPU work counts in the part that waits for it, not in the one that queues it.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._started: dict[str, float] = {}

    def start(self, part: str) -> None:
        """Start a part; it counts once `stop` is called."""
        self._started[part] = time.perf_counter()

    def stop(self, part: str) -> None:
        """End a part, if it was started."""
        started = self._started.pop(part, None)
        if started is not None:
            self.seconds[part] += time.perf_counter() - started

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start

    def reset(self) -> None:
        """Start a new epoch."""
        self.seconds.clear()
        self._started.clear()
