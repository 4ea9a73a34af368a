"""Where the time of an epoch goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

PARTS = ("data wait", "forward", "backward", "boxes", "scores")


class Stopwatch:
    """Seconds of each part, summed until `reset`.

    Parts are measured on the host: on a GPU, work that was only queued counts where something waits for it.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._started: dict[str, float] = {}

    def start(self, part: str) -> None:
        """Begin a part that `stop` ends, or that ends unmeasured."""
        self._started[part] = time.perf_counter()

    def stop(self, part: str) -> None:
        """End a part, if it was begun."""
        started = self._started.pop(part, None)
        if started is not None:
            self.seconds[part] += time.perf_counter() - started

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Time of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start

    def reset(self) -> None:
        """Start a new epoch."""
        self.seconds.clear()
        self._started.clear()
