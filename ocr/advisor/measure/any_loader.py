"""What any torch DataLoader and any step cost: dataset, collate, the way between processes, pinning, step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from ocr.advisor.measure.pages import spread
from ocr.advisor.measure.sending import (
    STEPS,
    Sending,
    copied,
    measure_pinning,
    measure_sending,
    pin_memory,
    pins_memory,
)
from ocr.advisor.measure.stage_demands import SHORT_SECONDS, ScalingClock
from ocr.advisor.measure.stage_timing import Step, bytes_of
from ocr.advisor.model.queueing import Consumer, Demand
from ocr.cache.item_format import pack_item
from ocr.cache.items import cached
from ocr.errors import ConfigError, DataError

Loader = DataLoader[Any]
DATASET, COLLATE, FROM_CACHE = "the dataset", "collating", "the cache"
ONE_BY_ONE = "the dataset, item by item"
LONG_SECONDS = 0.5
"""Of an item that takes longer, fewer are measured."""


@dataclass(frozen=True, slots=True)
class LoaderCosts:
    """What was measured, per item unless it says otherwise."""

    items: int
    """Per epoch."""
    batch_size: int
    dataset: Demand
    """As torch's DataLoader reads it: a batch at a time if it has `__getitems__`."""
    one_by_one: Demand
    """As threads read it, with `__getitem__`."""
    item_seconds: tuple[float, ...]
    """Of single items, which may differ; empty if a batch is read at a time."""
    collate: Demand
    cached: Demand | None
    """Reading an item that `ocr.cached` keeps; None if items are random, or cannot be kept."""
    kept_bytes: float
    """Of such an item."""
    sending: Sending
    pinning: Demand | None
    """None if the loader pins nothing."""
    consumer: Consumer
    batch: Any

    @property
    def batch_bytes(self) -> int:
        """Of the tensors and arrays of a batch."""
        return bytes_of(self.batch)


def measure_loader(loader: Loader, step: Callable[[Any], object] | None, wanted: int, cores: int) -> LoaderCosts:
    """Measure on a few items, in this process, and on a few batches that one worker process sends."""
    dataset: Any = loader.dataset
    _check_batches(loader)
    size = batch_size_of(loader)
    indices = _indices(loader, wanted)
    at_once = reads_batches(dataset)
    with ThreadPoolExecutor(2) as pool:
        clock = ScalingClock(pool, 2)
        clock.calibrate()
        single = Step(ONE_BY_ONE if at_once else DATASET, DATASET, "source", dataset.__getitem__)
        items = [clock.measure(single, index) for index in indices]
        if max(clock.seconds_of(single.name)) < SHORT_SECONDS:
            # Too short to tell what threads that read at the same time do to each other.
            several = single._replace(run=lambda chosen: [dataset[index] for index in chosen])
            for _ in range(STEPS):
                clock.measure(several, _repeated(indices, size), pages=size)
        if at_once:
            for _ in range(STEPS):
                chosen = _repeated(indices, size)
                clock.measure(Step(DATASET, DATASET, "source", dataset.__getitems__), chosen, pages=size)
        for _ in range(STEPS):
            collate = Step(COLLATE, COLLATE, "batch", loader.collate_fn)
            batch = clock.measure(collate, _repeated(items, size), pages=size)
        kept_bytes = _measure_cached(clock, dataset, indices)
        demands = {demand.name: demand for demand in clock.demands(contended=cores > 1).demands}
    batch_seconds = size * sum(demands[name].seconds for name in (DATASET, COLLATE))
    return LoaderCosts(
        items_per_epoch(loader, size),
        size,
        demands[DATASET],
        demands[single.name],
        () if at_once else tuple(clock.seconds_of(DATASET)),
        demands[COLLATE],
        demands.get(FROM_CACHE),
        kept_bytes,
        measure_sending(loader, batch, size, batch_seconds, cores),
        measure_pinning(batch, size, pin_memory) if pins_memory(loader) else None,
        _measure_step(step, batch),
        batch,
    )


def reads_batches(dataset: Any) -> bool:
    """Whether torch asks the dataset for all items of a batch in one call."""
    return bool(getattr(dataset, "__getitems__", None))


def _repeated(values: Sequence[Any], size: int) -> list[Any]:
    """A batch of few values."""
    return (list(values) * -(-size // len(values)))[:size]


def batch_size_of(loader: Loader) -> int:
    """Items per batch; raises ConfigError for a loader that has no batches of items."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    if loader.batch_sampler is None:
        raise ConfigError(
            "batch_size=None: the loader makes no batches. Give a DataLoader with a batch_size", setting="batch_size"
        )
    return len(next(iter(loader.batch_sampler)))


def items_per_epoch(loader: Loader, size: int) -> int:
    """Without the last batch if it is dropped."""
    try:
        whole = len(loader.sampler)  # type: ignore[arg-type]
    except TypeError:
        whole = len(loader) * size
    return min(whole, len(loader) * size)


def _check_batches(loader: Loader) -> None:
    """Raise for a loader without batches, or with nobody knows how many."""
    name = type(loader.dataset).__name__
    try:
        batches = len(loader)
    except TypeError as error:
        raise ConfigError(
            f"the sampler of the loader of {name} has no length: give it a __len__",
            setting="sampler",
            value=loader.sampler,
        ) from error
    if not batches:
        cure = "Lower batch_size, or leave out drop_last" if loader.drop_last else "Give a dataset that has some"
        raise DataError(
            f"the loader of {name} gives no batches: it has no items, or too few. {cure}",
            setting="loader",
            value=loader,
        )


def takes_every_item(loader: Loader) -> bool:
    """Whether an epoch has every item of the dataset once, in order or shuffled, as one of `ocr.Loader` has."""
    batches: Any = loader.batch_sampler
    if type(batches) is not BatchSampler or type(batches.sampler) not in (SequentialSampler, RandomSampler):
        return False
    sampler: Any = batches.sampler
    return not getattr(sampler, "replacement", False) and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]


def _indices(loader: Loader, wanted: int) -> list[Any]:
    """Items from all over the dataset, once read, so that their files are in memory; fewer if they take long.

    A sampler of the user's own says which items there are: the first ones that it gives are taken.
    """
    dataset: Any = loader.dataset
    if takes_every_item(loader):
        chosen: list[Any] = spread(len(dataset), wanted)
    else:
        batches: Any = loader.batch_sampler
        chosen = list(islice(chain.from_iterable(batches), wanted))
    begin, read = time.perf_counter(), 0
    for index in chosen:
        dataset[index]
        read += 1
        if time.perf_counter() - begin > LONG_SECONDS * wanted / 4:
            break
    return chosen[:read]


class _FewItems:
    """Some items of a dataset, for a cache of their own."""

    def __init__(self, dataset: Any, indices: Sequence[Any]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> Any:
        return self.dataset[self.indices[position]]

    def fingerprint_parts(self) -> dict[str, Any]:
        """The cache is gone before anything could change."""
        return {}


def _measure_cached(clock: ScalingClock, dataset: Any, indices: Sequence[Any]) -> float:
    """Bytes of an item in a cache; 0 if items differ each time, or cannot be kept. What reading takes is measured."""
    few = _FewItems(dataset, indices)
    with TemporaryDirectory(prefix="glyphfeed-advise-") as folder:
        try:
            kept = cached(few, str, folder=folder)
            sizes = [pack_item(kept[position]) for position in range(len(few))]
        except ConfigError:
            return 0.0
        step = Step(FROM_CACHE, FROM_CACHE, "source", lambda: [kept[position] for position in range(len(few))])
        for _ in range(STEPS):
            clock.measure(step, pages=len(few))
    return sum(len(record.arrays["image"]) + len(record.metadata) for record in sizes) / len(sizes)


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
