"""A few batches of a loader on the clock, thread by thread: each stage of each page, waiting, steps, and memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from copy import copy
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ocr.advisor.measure.process_memory import MemoryWatch
from ocr.advisor.measure.timed_batches import Span
from ocr.datasets.page_dataset import PageDataset
from ocr.loader.loader import Loader
from ocr.loader.protocol import CachedBatch
from ocr.pipeline.batch import Batch, Item, Slot, listed
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import Sample
from ocr.pipeline.sampling import run_in_one_pass

MAX_BATCHES, MAX_SECONDS = 24, 20.0
MIN_BATCHES = 3
"""Fewer steps than these tell nothing."""
P = ParamSpec("P")
T = TypeVar("T")


class Trace(NamedTuple):
    """What every thread did when, in seconds from the start, and the bytes in use at some times."""

    spans: list[Span]
    memory: list[tuple[float, int]]

    def to_figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "timeline": [asdict(span) for span in self.spans],
            "memory": [{"at_s": seconds, "bytes": size} for seconds, size in self.memory],
        }


class Recorder:
    """Collects what threads do, on one clock."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, str, str, float, float]] = []

    def run(self, what: str, kind: str, call: Callable[P, T], *arguments: P.args, **settings: P.kwargs) -> T:
        """Call something, and note when."""
        begin = time.perf_counter()
        try:
            return call(*arguments, **settings)
        finally:
            self.note(what, kind, begin)

    def note(self, what: str, kind: str, begin: float) -> None:
        """Note what this thread has done since `begin`."""
        self._noted.append((threading.get_ident(), what, kind, begin, time.perf_counter()))

    def clear(self) -> None:
        """Forget everything."""
        self._noted.clear()

    def spans(self, begin: float, end: float) -> list[Span]:
        """What was done between these times, in order; this thread is the model's, others are numbered."""
        noted = sorted((one for one in list(self._noted) if begin <= one[3] < end), key=lambda one: one[3])
        names = {threading.get_ident(): "model"}
        for thread, *_ in noted:
            names.setdefault(thread, f"worker {len(names)}")
        return [
            Span(what, start - begin, min(stop, end) - begin, names[thread], kind)
            for thread, what, kind, start, stop in noted
        ]


class TracedPages:
    """The pages of a dataset, made as the dataset makes them, with every stage noted."""

    def __init__(self, dataset: PageDataset, recorder: Recorder) -> None:
        self._dataset, self._recorder = dataset, recorder

    def write(self, index: int, slot_for: Callable[[Sample], Slot], epoch: int | None = None) -> Item | None:
        """As `PageDataset.write`."""
        return self._dataset.guard(index, lambda index: self._write(index, slot_for, epoch))

    def peek(self, indices: Sequence[int]) -> CachedBatch | None:
        """As `PageDataset.peek`."""
        begin = time.perf_counter()
        if (cached := self._dataset.peek(indices)) is not None:
            self._recorder.note("view of the cache", "batch", begin)
        return cached

    def keep(self, index: int) -> str:
        """As `PageDataset.keep`."""
        return self._recorder.run("page and maps, into the cache", "fixed", self._dataset.keep, index)

    def _write(self, index: int, slot_for: Callable[[Sample], Slot], epoch: int | None) -> Item:
        dataset, run = self._dataset, self._recorder.run
        sample, random = self._at_cut(index), dataset.transform.random
        if random:
            drawn_for = dataset.epoch if epoch is None else epoch
            rng = sample_generator(dataset.seed, drawn_for, dataset.source.number(index))
            sample = run("random stages", "random", run_in_one_pass, random, sample, rng)
        slot = slot_for(sample).inside(*sample.size)
        # Random geometry and colours are computed while the page is written.
        what = ("warp into the batch", "random") if sample.sampling is not None else ("write into the batch", "batch")
        run(*what, slot.write, sample, dataset.transform.host_normalization, None)
        sample = run("targets", "targets", slot.write_maps, sample, dataset.draw_maps)
        dataset.ledger.record(sample)
        return listed(sample)

    def _at_cut(self, index: int) -> Sample:
        dataset, run = self._dataset, self._recorder.run
        if dataset.cache is not None or dataset.source.is_ready:
            begin = time.perf_counter()
            sample = dataset.at_cut(index)
            is_kept = dataset.cache is None or sample.cached == "hit"
            self._recorder.note("read what is kept" if is_kept else "page, into the cache", "fixed", begin)
            return sample
        sample = run("source", "source", dataset.source.read, index)
        sample = run("decode", "fixed", dataset.decode, sample)
        for stage in dataset.fixed_part.stages:
            sample = run(type(stage).__name__, "fixed", stage, sample)
        return sample


class TracedLoader(Loader):
    """A loader whose threads note what they do; worker processes do not."""

    def __init__(self, dataset: PageDataset, *arguments: Any, **settings: Any) -> None:
        self.recorder = Recorder()
        twin, traced = copy(dataset), TracedPages(dataset, self.recorder)
        for method in (traced.write, traced.peek, traced.keep):
            setattr(twin, method.__name__, method)
        super().__init__(twin, *arguments, **settings)
        if (finish := self._maker.finish) is not None:
            self._maker.finish = lambda batch: self.recorder.run("device", "device", finish, batch)


def trace_later_epoch(loader: TracedLoader, step: Callable[[Batch], object] | None, step_seconds: float = 0.0) -> Trace:
    """The first batches of an epoch whose pages are in the caches; empty if a step takes too long for that."""
    count = min(MAX_BATCHES, int(MAX_SECONDS / max(step_seconds, 1e-9)))
    if count < MIN_BATCHES:
        return Trace([], [])
    filling: Any = iter(loader)
    with closing(filling):
        for _ in islice(filling, count):
            pass
    loader.set_epoch(0)
    return trace_batches(loader, step, count)


def trace_batches(loader: TracedLoader, step: Callable[[Batch], object] | None, count: int) -> Trace:
    """Run a step on each of the first batches of the next epoch."""
    record = loader.recorder
    passed: Any = iter(loader)
    with MemoryWatch() as memory, closing(passed):
        record.clear()
        begin = time.perf_counter()
        memory.look()
        for _ in range(count):
            asked = time.perf_counter()
            try:
                batch = next(passed)
            except StopIteration:
                break
            record.note("wait", "wait", asked)
            if step is not None and batch is not None:
                record.run("step", "model", step, batch)
        end = time.perf_counter()
        memory.look()
    looks = [(at - begin, size) for at, size in memory.looks if at >= begin]
    return Trace(record.spans(begin, end), looks)
