"""What any torch DataLoader and any step cost: dataset, collate, the way between processes, starting workers, step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from ocr.advisor.measure.pages import spread
from ocr.advisor.measure.process_memory import MemoryWatch
from ocr.advisor.measure.stage_demands import ScalingClock
from ocr.advisor.measure.stage_timing import Step
from ocr.advisor.model.queueing import Consumer, Demand
from ocr.cache.item_format import pack_item, unpack_item
from ocr.errors import ConfigError, DataError

Loader = DataLoader[Any]
DATASET, COLLATE, TRANSFER, FROM_CACHE = "the dataset", "collating", "the way between processes", "the cache"
STEPS = 3
SENT_BATCHES, MADE_BATCHES = 8, 3
LONG_SECONDS = 0.5
"""Of an item that takes longer, fewer are measured."""


@dataclass(frozen=True, slots=True)
class LoaderCosts:
    """What was measured, per item unless it says otherwise."""

    items: int
    """Per epoch."""
    batch_size: int
    dataset: Demand
    collate: Demand
    cached: Demand | None
    """Reading an item that `ocr.cached` keeps; None if items are random, or cannot be kept."""
    kept_bytes: float
    """Of such an item."""
    transfer: Demand | None
    """None if no worker process could be started."""
    start_seconds: float
    """Until a worker process sends its first batch."""
    worker_bytes: int
    """Memory that one worker process takes beyond what it shares."""
    consumer: Consumer
    batch: Any


def measure_loader(loader: Loader, step: Callable[[Any], object] | None, wanted: int, cores: int) -> LoaderCosts:
    """Measure on a few items, in this process, and on a few batches that one worker process sends."""
    dataset, collate = loader.dataset, loader.collate_fn
    size = batch_size_of(loader)
    indices = _indices(dataset, wanted)
    with ThreadPoolExecutor(2) as pool:
        clock = ScalingClock(pool, 2)
        clock.calibrate()
        items = [clock.measure(Step(DATASET, DATASET, "source", dataset.__getitem__), index) for index in indices]
        together = (items * -(-size // len(items)))[:size]
        for _ in range(STEPS):
            batch = clock.measure(Step(COLLATE, COLLATE, "batch", collate), together, pages=size)
        kept_bytes = _measure_cached(clock, dataset, indices, items)
        demands = {demand.name: demand for demand in clock.demands(contended=cores > 1).demands}
    sent = _measure_sending(loader, batch, size)
    return LoaderCosts(
        items_per_epoch(loader, size),
        size,
        demands[DATASET],
        demands[COLLATE],
        demands.get(FROM_CACHE),
        kept_bytes,
        *sent,
        _measure_step(step, batch),
        batch,
    )


def batch_size_of(loader: Loader) -> int:
    """Items per batch; raises ConfigError for a loader that has no batches of items."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    if loader.batch_sampler is None:
        raise ConfigError("batch_size=None: the loader makes no batches. Give a DataLoader with a batch_size")
    return len(next(iter(loader.batch_sampler)))


def items_per_epoch(loader: Loader, size: int) -> int:
    """Without the last batch if it is dropped."""
    try:
        whole = len(loader.sampler)  # type: ignore[arg-type]
    except TypeError:
        whole = len(loader) * size
    return min(whole, len(loader) * size)


def _indices(dataset: Any, wanted: int) -> list[int]:
    """Items from all over the dataset, once read, so that their files are in memory; fewer if they take long."""
    chosen = spread(len(dataset), wanted)
    if not chosen:
        raise DataError(f"{type(dataset).__name__} has no items. Give a dataset that has some")
    begin, read = time.perf_counter(), 0
    for index in chosen:
        dataset[index]
        read += 1
        if time.perf_counter() - begin > LONG_SECONDS * wanted / 4:
            break
    return chosen[:read]


def _measure_cached(clock: ScalingClock, dataset: Any, indices: Sequence[int], items: Sequence[Any]) -> float:
    """Bytes of an item in a cache; 0 if items differ each time, or cannot be kept. What reading takes is measured."""
    try:
        records = [pack_item(item) for item in items]
        if pack_item(dataset[indices[0]]).checksum() != records[0].checksum():
            return 0.0
    except ConfigError:
        return 0.0
    for record in records:
        clock.measure(Step(FROM_CACHE, FROM_CACHE, "source", unpack_item), record)
    return sum(len(record.arrays["image"]) + len(record.metadata) for record in records) / len(records)


class _SameBatch:
    """A dataset whose every item is one batch that is there already: what is left is the way between processes."""

    def __init__(self, batch: Any, count: int) -> None:
        self.batch, self.count = batch, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        # The worker's own copy is made again, as collating would: tensors in shared memory are not copied once more.
        return copied(self.batch)


class Sending(NamedTuple):
    """What one worker process takes to start and to send, and its memory."""

    transfer: Demand | None
    start_seconds: float
    worker_bytes: int


def _measure_sending(loader: Loader, batch: Any, size: int) -> Sending:
    """Batches that are there already show what sending takes; real ones show what starting and memory do."""
    sampler: Any = loader.batch_sampler
    try:
        same = _from_one_worker(loader, _SameBatch(batch, SENT_BATCHES), batch_size=None)
        real = _from_one_worker(
            loader, loader.dataset, batch_sampler=list(islice(sampler, MADE_BATCHES)), collate_fn=loader.collate_fn
        )
    except (RuntimeError, OSError):  # No shared memory, or a batch that cannot be sent.
        return Sending(None, 0.0, 0)
    here = median(_seconds(lambda: copied(batch)) for _ in range(STEPS))
    sending = max(0.0, same.each - here) / size
    transfer = Demand(TRANSFER, sending, sending, kind="batch")
    return Sending(transfer, max(0.0, real.first - real.each), real.memory_bytes)


class _Arrivals(NamedTuple):
    """Of the batches of one worker process: seconds until the first, then between two, and its memory."""

    first: float
    each: float
    memory_bytes: int


def _from_one_worker(loader: Loader, dataset: Any, **settings: Any) -> _Arrivals:
    settings |= {"multiprocessing_context": loader.multiprocessing_context, "worker_init_fn": loader.worker_init_fn}
    sender: Loader = DataLoader(dataset, num_workers=1, **settings)
    arrivals: list[float] = []
    begin = time.perf_counter()
    with MemoryWatch() as memory:
        passed: Any = iter(sender)
        for _ in range(len(sender) - 1):
            next(passed)
            arrivals.append(time.perf_counter() - begin)
        memory.look()  # Before the last batch, after which the worker ends.
        arrivals.extend(time.perf_counter() - begin for _ in passed)
    return _Arrivals(arrivals[0], (arrivals[-1] - arrivals[0]) / max(1, len(arrivals) - 1), memory.growth_bytes)


def _measure_step(step: Callable[[Any], object] | None, batch: Any) -> Consumer:
    """The fastest of a few steps after the first, which may compile or allocate."""
    if step is None:
        return Consumer()
    step(copied(batch))
    found = []
    for _ in range(STEPS):
        again, cpu, begin = copied(batch), time.process_time(), time.perf_counter()
        step(again)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append((time.perf_counter() - begin, time.process_time() - cpu))
    return Consumer(*min(found))


def copied(batch: Any) -> Any:
    """The batch in memory of its own: a step may write to it."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {name: copied(value) for name, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(copied(value) for value in batch)
    return batch


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
