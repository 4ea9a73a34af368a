"""Real batches on a few pages: what a configuration asks for that is not there yet, and epochs to check predictions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ocr.loader.batch_maker import choose_maker
from ocr.loader.worker_pool import WorkerPool
from ocr.pipeline.batch import Batch

AHEAD = 2
ALARM_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What some batches took."""

    seconds: float
    cpu_seconds: float
    pages: int


def time_batches(
    dataset: Any,
    plan: Sequence[Sequence[int]],
    workers: int,
    finish: Callable[[Batch], Batch] | None = None,
    rounds: int = 2,
) -> Trial:
    """The fastest of a few passes over these batches, made by as many threads as are given."""
    maker = choose_maker(dataset, None, finish)
    best: Trial | None = None
    for _ in range(rounds):
        cpu, begin = time.process_time(), time.perf_counter()
        pool = WorkerPool(iter(plan), maker, max(1, workers), AHEAD, ALARM_SECONDS)
        try:
            pages = sum(len(batch["images"]) if batch is not None else 0 for batch in pool.batches())
        finally:
            pool.close()
        trial = Trial(time.perf_counter() - begin, time.process_time() - cpu, pages)
        best = trial if best is None or trial.seconds < best.seconds else best
    assert best is not None
    return best


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of an epoch in which the consumer waited, or was at a step."""

    what: str
    start_s: float
    end_s: float


def run_epoch(batches: Iterable[Any], step: Callable[[Batch], object] | None = None) -> tuple[float, list[Span]]:
    """Seconds of an epoch with a consumer, and when it waited."""
    spans: list[Span] = []
    begin = asked = time.perf_counter()
    for batch in batches:
        came = time.perf_counter()
        spans.append(Span("wait", asked - begin, came - begin))
        if step is not None and batch is not None:
            step(batch)
        asked = time.perf_counter()
        spans.append(Span("compute", came - begin, asked - begin))
    end = time.perf_counter()
    spans.append(Span("wait", asked - begin, end - begin))
    return end - begin, spans
