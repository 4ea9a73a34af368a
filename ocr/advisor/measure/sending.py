"""What worker processes of torch's DataLoader take: starting, sending a batch, memory, pinning what arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from statistics import median
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

from ocr.advisor.measure.process_memory import MemoryWatch
from ocr.advisor.model.queueing import MAIN, Demand

Loader = DataLoader[Any]
TRANSFER, PINNING, PINNING_THREAD = "the way between processes", "pinning", "the thread that pins"
STEPS = 3
SENT_BATCHES, MADE_BATCHES, MAX_BATCHES = 17, 6, 32
MADE_SECONDS = 0.4
"""Real batches are made for so long, or as many as these two say."""


class Sending(NamedTuple):
    """What worker processes take to start and to send, and their memory."""

    transfer: Demand | None
    """Per item; None if no worker process could be started."""
    start_seconds: float
    """Until the first batch, beyond the time of a batch, and after the last until the processes have ended."""
    worker_bytes: int
    contention: float
    """How many times as long a batch takes while all cores have a worker."""


class _SameBatch:
    """A dataset whose every item is one batch that is there already: what is left is the way between processes."""

    def __init__(self, batch: Any, count: int) -> None:
        self.batch, self.count = batch, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        # The worker's own copy is made again, as collating would: tensors in shared memory are not copied once more.
        return copied(self.batch)


def _as_it_is(batch: Any) -> Any:
    """Torch's own function makes tensors of arrays, which take another way between processes."""
    return batch


def measure_sending(loader: Loader, batch: Any, size: int, batch_seconds: float, cores: int) -> Sending:
    """Batches that are there already show what sending takes; real ones, from one worker and from one per core, show
    what starting, memory and working at the same time do."""
    rounds = max(MADE_BATCHES, min(MAX_BATCHES, int(MADE_SECONDS / max(1e-6, batch_seconds))))
    try:
        same = _from_workers(
            loader, _SameBatch(batch, SENT_BATCHES), 1, SENT_BATCHES, batch_size=None, collate_fn=_as_it_is
        )
        alone = _from_workers(loader, loader.dataset, 1, rounds, **_few_batches(loader, rounds))
        together, count = alone, cores * rounds
        # A stream may give its batches to every worker anew.
        if cores > 1 and not isinstance(loader.dataset, IterableDataset):
            together = _from_workers(loader, loader.dataset, cores, count, **_few_batches(loader, count))
    except (RuntimeError, OSError):  # No shared memory, or a batch that cannot be sent.
        return Sending(None, 0.0, 0, 1.0)
    here = median(_seconds(lambda: copied(batch)) for _ in range(STEPS))
    sending, received = max(0.0, same.each - here) / size, same.received / size
    started = alone if loader.num_workers < 2 else together
    start = max(0.0, started.first - started.each) + started.end
    contention = min(float(cores), max(1.0, together.each / max(1e-9, alone.each)))
    # Both ends compute: the worker while it sends, and the main process while it receives.
    transfer = Demand(TRANSFER, sending, sending + received, received, MAIN, kind="batch")
    return Sending(transfer, start, alone.memory_bytes, contention)


def _few_batches(loader: Loader, count: int) -> dict[str, Any]:
    """The settings with which a loader gives so many batches, the same ones again if it has fewer; a stream is left
    after them."""
    settings = {"collate_fn": loader.collate_fn}
    if isinstance(loader.dataset, IterableDataset):
        return settings | {"batch_size": loader.batch_size}
    sampler: Any = loader.batch_sampler
    return settings | {"batch_sampler": list(islice(cycle(list(islice(sampler, count))), count))}


class _Arrivals(NamedTuple):
    """Of batches of worker processes that start together: seconds until the first, between two of the same worker, and
    after the last; CPU seconds of receiving one; memory of a worker."""

    first: float
    each: float
    end: float
    received: float
    memory_bytes: int


def _from_workers(loader: Loader, dataset: Any, workers: int, count: int, **settings: Any) -> _Arrivals:
    settings |= {"multiprocessing_context": loader.multiprocessing_context, "worker_init_fn": loader.worker_init_fn}
    sender: Loader = DataLoader(dataset, num_workers=workers, **settings)
    endless = isinstance(dataset, IterableDataset)
    moments: list[float] = []
    received = 0.0
    with MemoryWatch() as memory:
        begin, cpu = time.perf_counter(), 0.0
        for _ in islice(sender, count) if endless else sender:
            moments.append(time.perf_counter() - begin)
            # From the second batch on: before that, the workers are started.
            cpu = cpu or time.thread_time()
            if len(moments) == max(1, count - 1):
                # Before the last batch, after which the workers end; it is not counted, because looking takes a moment.
                received = (time.thread_time() - cpu) / max(1, len(moments) - 1)
                memory.look()
        end = time.perf_counter() - begin - moments[-1]
    each = _fastest_half(moments[::workers] if len(moments) < 3 else moments[:-1:workers])
    return _Arrivals(moments[0], each, 0.0 if endless else end, received, memory.growth_bytes // workers)


def _fastest_half(moments: Sequence[float]) -> float:
    """Seconds between two batches, in the faster half: other processes may hold up the other one."""
    if len(moments) < 2:
        return moments[0]
    middle = len(moments) // 2
    halves = [moments[: middle + 1], moments[middle:]]
    return min((half[-1] - half[0]) / (len(half) - 1) for half in halves if len(half) > 1)


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
