"""The time that each part of an epoch takes, and the rest of a training."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

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


@dataclass(frozen=True, slots=True)
class RunClock:
    """Started where this process starts to train: a resumed run knows nothing of the time before."""

    total_steps: int = 0
    first_step: int = 0
    started: float = 0.0

    @classmethod
    def of(cls, trainer: Any, module: Any) -> Self:
        """The clock of a training that starts now."""
        return cls(getattr(module, "planned_steps", 0), trainer.global_step, time.perf_counter())

    def left(self, step: int, now: float | None = None) -> float | None:
        """Seconds until the last step, with validations and all; None if that cannot be known yet.

        >>> RunClock(total_steps=100, first_step=20, started=0.0).left(40, now=30.0)
        90.0
        """
        done = step - self.first_step
        if not self.total_steps or done <= 0:
            return None
        elapsed = (time.perf_counter() if now is None else now) - self.started
        return max(0.0, elapsed * (self.total_steps - step) / done)
