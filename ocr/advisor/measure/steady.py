"""What a batch takes while workers and the step are at work at the same time: a few batches, tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any

Step = Callable[[Any], object]
TRIAL_SECONDS, MIN_BATCHES, MAX_BATCHES = 0.6, 8, 96
PASSES = 2
"""Other processes may hold up one of them; the faster one counts."""


def steady_seconds(batches: Iterable[Any], step: Step | None, workers: int, expected: float) -> float | None:
    """Seconds from one batch to the next, once all workers are at work; None if there are too few batches to tell."""
    count = max(MIN_BATCHES * workers, min(MAX_BATCHES, int(TRIAL_SECONDS / max(1e-6, expected))))
    found = [_seconds(batches, step, workers, count) for _ in range(PASSES)]
    return min((seconds for seconds in found if seconds is not None), default=None)


def _seconds(batches: Iterable[Any], step: Step | None, workers: int, count: int) -> float | None:
    moments: list[float] = []
    passed = iter(batches)
    try:
        for batch in islice(passed, count):
            moments.append(time.perf_counter())
            if step is not None:
                step(batch)
    finally:
        if isinstance(passed, Generator):
            passed.close()
    # Workers that start together finish their batches together.
    last = (len(moments) - 1) // workers * workers
    return (moments[last] - moments[0]) / last if last > 0 else None
