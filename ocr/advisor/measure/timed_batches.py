"""Batches on the clock: from threads, worker processes or DALI on a few pages, and whole epochs with a consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from ocr.datasets.page_dataset import PageDataset
from ocr.errors import GlyphFeedError
from ocr.loader.batch_maker import choose_maker
from ocr.loader.loader import Loader
from ocr.loader.worker_pool import WorkerPool
from ocr.pipeline.batch import Batch, collate

if TYPE_CHECKING:
    from ocr.dali.loader import DALIDataLoader

BATCHES_AHEAD = 2
ALARM_SECONDS = 60.0
DALI_BATCHES = 6


class Pass(NamedTuple):
    """What one pass over some pages took."""

    seconds: float
    cpu_seconds: float
    """Of all threads and, if they have ended, worker processes."""
    pages: int


def time_batches(
    dataset: PageDataset,
    plan: Sequence[Sequence[int]],
    workers: int,
    finish: Callable[[Batch], Batch] | None = None,
) -> Pass:
    """One pass over these batches, made by this many threads."""
    maker = choose_maker(dataset, None, finish)
    cpu, begin = time.process_time(), time.perf_counter()
    pool = WorkerPool(iter(plan), maker, max(1, workers), BATCHES_AHEAD, ALARM_SECONDS)
    try:
        pages = sum(len(batch["images"]) if batch is not None else 0 for batch in pool.batches())
    finally:
        pool.close()
    return Pass(time.perf_counter() - begin, time.process_time() - cpu, pages)


class LoaderTimes(NamedTuple):
    """What a loader takes that cannot be measured stage by stage."""

    start_seconds: float
    """Until the first batch, beyond the time of a batch."""
    batch_seconds: float


def time_processes(dataset: PageDataset, plan: Sequence[Sequence[int]], workers: int) -> LoaderTimes:
    """Torch's DataLoader, whose worker processes are started for these batches."""
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=list(plan),  # type: ignore[arg-type]
        num_workers=workers,
        collate_fn=lambda items: collate(items, dataset.targets),
    )
    return _time(batches, len(plan), workers)


def open_dali(dataset: PageDataset, batch_size: int, workers: int, **settings: Any) -> DALIDataLoader | None:
    """The loader of `use_dali=true`; None if DALI is not installed, or cannot run these stages."""
    if find_spec("nvidia") is None or find_spec("nvidia.dali") is None:
        return None
    try:
        from ocr.dali.graph import ocr_pipeline
        from ocr.dali.loader import DALIDataLoader

        # "auto" would warn that there is no GPU, although the user did not ask for DALI.
        device = "gpu" if torch.cuda.is_available() else "cpu"
        pipeline = ocr_pipeline(dataset, batch_size, max(1, workers), device=device)
        return DALIDataLoader(pipeline, len(dataset), batch_size, num_workers=workers, **settings)
    except GlyphFeedError:
        return None


def time_dali(loader: DALIDataLoader) -> LoaderTimes:
    """A few batches, after a pass that lets DALI allocate its memory."""
    batches = min(DALI_BATCHES, len(loader))
    for _ in range(2):
        passed: Any = iter(loader)
        with closing(passed):
            times = _time(passed, batches, 1)
    return times


def _time(batches: Iterable[Batch | None], count: int, workers: int) -> LoaderTimes:
    begin, arrivals = time.perf_counter(), []
    for _ in batches:
        arrivals.append(time.perf_counter() - begin)
        if len(arrivals) == count:
            break
    # All workers start at the same time, so their first batches arrive together.
    first = min(workers, len(arrivals) - 1)
    if first and len(arrivals) > first:
        each = (arrivals[-1] - arrivals[first - 1]) / (len(arrivals) - first)
    else:
        each = arrivals[-1] / len(arrivals)
    return LoaderTimes(max(0.0, arrivals[0] - each), each)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of an epoch in which a thread did one thing: the consumer waits or computes, a worker runs a stage."""

    what: str
    start_s: float
    end_s: float
    thread: str = "model"
    kind: str = ""
    """Of the stage; "wait" or "model" for the consumer."""


def run_part(batches: Loader, step: Callable[[Batch], object] | None, max_seconds: float) -> float:
    """Seconds of an epoch with a consumer; after `max_seconds` the rest is taken to be like what was run."""
    begin = time.perf_counter()
    done, seconds, passed = 0, 0.0, iter(batches)
    try:
        for batch in passed:
            if step is not None and batch is not None:
                step(batch)
            done += 1
            if time.perf_counter() - begin > max_seconds:
                break
        seconds = time.perf_counter() - begin
    finally:
        if isinstance(passed, Generator):
            passed.close()
    return seconds * len(batches) / max(1, done)


def run_epoch(
    batches: Iterable[Batch | None], step: Callable[[Batch], object] | None = None
) -> tuple[float, list[Span]]:
    """Seconds of an epoch with a consumer, and when it waited."""
    spans: list[Span] = []
    begin = asked = time.perf_counter()
    for batch in batches:
        arrived = time.perf_counter()
        spans.append(Span("wait", asked - begin, arrived - begin))
        if step is not None and batch is not None:
            step(batch)
        asked = time.perf_counter()
        spans.append(Span("compute", arrived - begin, asked - begin))
    end = time.perf_counter()
    spans.append(Span("wait", asked - begin, end - begin))
    return end - begin, spans
