"""What worker processes of torch's DataLoader take: starting, sending a batch, memory, pinning what arrives."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

from ocr.advisor.measure.process_memory import MemoryWatch
from ocr.advisor.model.queueing import Demand

Loader = DataLoader[Any]
TRANSFER, PINNING, PINNING_THREAD = "the way between processes", "pinning", "the thread that pins"
STEPS = 3
SENT_BATCHES, MADE_BATCHES = 9, 4


class Sending(NamedTuple):
    """What one worker process takes to start and to send, and its memory."""

    transfer: Demand | None
    """Per item; None if no worker process could be started."""
    start_seconds: float
    """Until the first batch, beyond the time of a batch, and after the last until the process has ended."""
    worker_bytes: int


class _SameBatch:
    """A dataset whose every item is one batch that is there already: what is left is the way between processes."""

    def __init__(self, batch: Any, count: int) -> None:
        self.batch, self.count = batch, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        # The worker's own copy is made again, as collating would: tensors in shared memory are not copied once more.
        return copied(self.batch)


def measure_sending(loader: Loader, batch: Any, size: int) -> Sending:
    """Batches that are there already show what sending takes; real ones show what starting and memory do."""
    try:
        same = _from_workers(loader, _SameBatch(batch, SENT_BATCHES), 1, SENT_BATCHES, batch_size=None)
        workers = max(1, loader.num_workers)
        real = _from_workers(loader, loader.dataset, workers, MADE_BATCHES * workers, **_few_batches(loader, workers))
    except (RuntimeError, OSError):  # No shared memory, or a batch that cannot be sent.
        return Sending(None, 0.0, 0)
    here = median(_seconds(lambda: copied(batch)) for _ in range(STEPS))
    sending = max(0.0, same.each - here) / size
    transfer = Demand(TRANSFER, sending, sending, kind="batch")
    return Sending(transfer, max(0.0, real.first - real.each) + real.end, real.memory_bytes)


def _few_batches(loader: Loader, workers: int) -> dict[str, Any]:
    """The settings with which a loader gives a few batches; a stream is left after them."""
    sampler: Any = loader.batch_sampler
    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size, "collate_fn": loader.collate_fn}
    return {"batch_sampler": list(islice(sampler, MADE_BATCHES * workers)), "collate_fn": loader.collate_fn}


class _Arrivals(NamedTuple):
    """Of batches of worker processes that start together: seconds until the first, between two of the same worker, and
    after the last; memory of a worker."""

    first: float
    each: float
    end: float
    memory_bytes: int


def _from_workers(loader: Loader, dataset: Any, workers: int, count: int, **settings: Any) -> _Arrivals:
    settings |= {"multiprocessing_context": loader.multiprocessing_context, "worker_init_fn": loader.worker_init_fn}
    sender: Loader = DataLoader(dataset, num_workers=workers, **settings)
    endless = isinstance(dataset, IterableDataset)
    moments: list[float] = []
    with MemoryWatch() as memory:
        begin = time.perf_counter()
        for _ in islice(sender, count) if endless else sender:
            moments.append(time.perf_counter() - begin)
            if len(moments) == max(1, count - 1):
                memory.look()  # Before the last batch, after which the workers end.
        end = time.perf_counter() - begin - moments[-1]
    # Without the last one, for which looking at memory took a moment. Each worker's first batches come together.
    rounds = (len(moments) - 1) // workers - (len(moments) > 2 and workers == 1)
    each = (moments[rounds * workers] - moments[0]) / rounds if rounds > 0 else moments[0]
    return _Arrivals(moments[0], each, 0.0 if endless else end, memory.growth_bytes // workers)


def measure_pinning(batch: Any, size: int, pin: Callable[[Any], object]) -> Demand:
    """Per item: torch pins in one thread, whatever the number of workers."""
    pin(batch)
    seconds = min(_seconds(lambda: pin(batch)) for _ in range(STEPS)) / size
    return Demand(PINNING, seconds, seconds, seconds, PINNING_THREAD, kind="batch")


def pins_memory(loader: Loader) -> bool:
    """Whether `pin_memory=True` does something here: torch ignores it without an accelerator."""
    return bool(loader.pin_memory) and torch.accelerator.is_available()


def pin_memory(batch: Any) -> Any:
    """The batch in pinned memory, as torch's DataLoader makes it."""
    if isinstance(batch, torch.Tensor):
        return batch.pin_memory()
    if isinstance(batch, dict):
        return {name: pin_memory(value) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [pin_memory(value) for value in batch]
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch


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
