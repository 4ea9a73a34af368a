"""Advice for any torch DataLoader: what an epoch takes with the user's own step, and what would make it faster."""

from __future__ import annotations

import gc
import queue
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from ocr.advisor.advice import PRESENT, Advice, Change, Row, progress
from ocr.advisor.measure import SECONDS, Step, Trial, describe_machine, run_pass, run_trials
from ocr.cache.items import cached
from ocr.errors import ConfigError, GlyphFeedError
from ocr.loader.loader import Loader
from ocr.report.numbers import in_percent
from ocr.system import usable_cores

AHEAD = 8
"""Batches ahead per worker that are tried; torch's default is 2."""
ITEM_SECONDS = 0.7
"""For timing the dataset and the collate function by themselves."""
STREAM_SECONDS = 2.0
"""An epoch of a stream of unknown length is what it gives in this time."""

Tried = dict[str, tuple[Change | None, Trial]]


def advise(
    loader: Iterable[Any],
    step: Step | None = None,
    *,
    seconds: float = 30.0,
    verify: bool = False,
    console: Console | None = None,
) -> Advice:
    """Measure a loader with `step(batch)`, and what would make it faster, in about so many seconds.

    The loader is run as it is and in every changed form for a second or two, each time with the step. `verify=True`
    then runs a whole epoch of the present loader and of the best change. What is being measured is shown on `console`:
    without one on stderr, if that is a terminal.
    """
    _check(loader, step)
    console = console or Console(stderr=True, quiet=not sys.stderr.isatty())
    until = time.perf_counter() + seconds
    with ExitStack() as stack:
        show = stack.enter_context(progress(console, seconds))
        folder = stack.enter_context(TemporaryDirectory(prefix="glyphfeed-advise-"))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message=".*worker processes in total")
        parts = _measure_parts(loader, min(ITEM_SECONDS, seconds / 20))
        tried, not_tried = _candidates(loader, step, Path(folder), parts)
        trials = {name: trial for name, (_, trial) in tried.items()}
        alone = Trial(loader, None, batches=trials[PRESENT].timing.batches)
        for trial in (alone, *trials.values()):
            trial.seconds = min(SECONDS, seconds / (4 * len(tried)))
        run_trials({"the loader alone": alone}, show, 1, repeats=0)
        run_trials({PRESENT: trials[PRESENT]}, show, 1, repeats=0)
        run_trials(trials, show, repeats=1, until=until - 4 * alone.seconds)
        advice = _advice(step, tried, alone, parts, not_tried)
        if advice.best is not None:
            # Once more in turns: what is recommended must not have been lucky.
            run_trials(
                {name: trials[name] for name in (PRESENT, advice.best.change.name)}, show, repeats=0, until=until
            )
            advice = _advice(step, tried, alone, parts, not_tried)
        for name in (PRESENT, *([advice.best.change.name] if advice.best else [])) if verify else ():
            predicted = advice.pages / trials[name].timing.pages_per_second
            advice.verified.append((name, predicted, trials[name].run_epoch()))
        tried.clear()
        trials.clear()
        gc.collect()  # Workers end before their folder does.
    return advice


def _check(loader: object, step: object) -> None:
    if not isinstance(loader, Iterable) or isinstance(loader, Iterator):
        raise ConfigError(
            f"loader={loader!r:.80} cannot be run more than once. Pass a DataLoader, or anything that can be "
            "iterated again",
            setting="loader",
            value=loader,
        )
    if step is not None and not callable(step):
        raise ConfigError(
            f"step={step!r:.80} cannot be called. Pass the function that your loop calls with a batch",
            setting="step",
            value=step,
        )


# -- what a batch is made of


def _measure_parts(loader: Iterable[Any], seconds: float) -> dict[str, float]:
    """Seconds per item in the dataset, of those waiting, and in the collate function; empty for a stream."""
    if not isinstance(loader, DataLoader) or not _is_map_style(loader):
        return {}
    spent: dict[str, float] = {"reading the dataset": 0.0, "waiting in the dataset": 0.0, "collating": 0.0}
    done, ended = 0, time.perf_counter() + seconds
    for indices in loader.batch_sampler or ():
        began, cpu = time.perf_counter(), time.thread_time()
        items = [loader.dataset[index] for index in indices]
        read, cpu = time.perf_counter(), time.thread_time() - cpu
        loader.collate_fn(items)
        spent["reading the dataset"] += cpu
        spent["waiting in the dataset"] += max(0.0, read - began - cpu)
        spent["collating"] += time.perf_counter() - read
        done += len(items)
        if time.perf_counter() > ended:
            break
    return {name: seconds / max(1, done) for name, seconds in spent.items()}


def _is_map_style(loader: object) -> bool:
    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and isinstance(loader.batch_sampler, BatchSampler)
    )


def _takes_every_item(loader: DataLoader[Any]) -> bool:
    """Whether `ocr.Loader` would give the same items: each once per epoch."""
    sampler = loader.sampler
    return isinstance(sampler, SequentialSampler) or (isinstance(sampler, RandomSampler) and not sampler.replacement)


# -- what can be tried


def _candidates(
    loader: Iterable[Any], step: Step | None, folder: Path, parts: dict[str, float]
) -> tuple[Tried, dict[str, str]]:
    """The loader as it is, what else could be done with its dataset, and what cannot be tried."""
    batches = _count(loader)
    tried: Tried = {PRESENT: (None, Trial(loader, step, batches=batches))}

    def add(change: Change, made: Iterable[Any]) -> None:
        tried[change.name] = (change, Trial(made, step, batches=batches, may_fail=True))

    if not isinstance(loader, DataLoader) or not _is_map_style(loader):
        if not (isinstance(loader, DataLoader) and loader.num_workers):
            cause = "each batch is made while the step waits"
            add(
                Change("batches ahead in a thread", ("a thread that makes the next batch",), cause, "workers"),
                _InThread(loader),
            )
        return tried, {"workers": "a stream must divide itself among them, which cannot be tried from outside"}
    now, cores = loader.num_workers, usable_cores()
    slow = ""
    if parts:
        slowest = max(parts, key=lambda name: parts[name])
        slow = f"{slowest} takes {in_percent(parts[slowest] / sum(parts.values()))} of the work on a batch"
    # More workers than cores can wait at the same time, but not compute.
    more = {2 * cores} if slow.startswith("waiting") else set()
    for count in sorted(({0, 1, cores} | more) - {now}):
        name = f"{count} worker process{'es' * (count != 1)}" if count else "no worker process"
        overrides = (f"num_workers={count}", *["persistent_workers=True"] * (count > 0))
        cause = f"{now or 'no'} worker process{'es' * (now != 1)}: {slow}"
        if not count or (now and count < now):
            cause = "starting worker processes, and sending batches between them"
        add(Change(name, overrides, cause, "workers"), _like(loader, count))
    if now and not loader.persistent_workers:
        cause = "starting the workers in every epoch"
        add(Change("workers that stay", ("persistent_workers=True",), cause, "workers"), _like(loader, now))
    if now and (loader.prefetch_factor or 2) < AHEAD:
        made = _like(loader, now, prefetch_factor=AHEAD, persistent_workers=loader.persistent_workers)
        cause = "items that take different times, with few batches ahead"
        add(Change(f"{AHEAD} batches ahead", (f"prefetch_factor={AHEAD}",), cause, "ahead"), made)
    if not _takes_every_item(loader):
        return tried, {"ocr.Loader": "it takes every item once per epoch, and the sampler of this loader does not"}
    cause = "sending batches between worker processes" if now else f"no worker: {slow}"
    for count in sorted({1, cores}):
        overrides = ("from ocr import Loader;", f"Loader(dataset, batch_size, num_workers={count}, collate_fn=...)")
        name = f"{count} thread{'s' * (count > 1)}"
        add(Change(name, overrides, cause, "workers"), _own(loader, loader.dataset, count))
    try:
        kept: Any = cached(loader.dataset, str, folder=folder)  # type: ignore[arg-type]
    except GlyphFeedError as error:
        return tried, {"cache": str(error).splitlines()[0]}
    overrides = ("from ocr import Loader, cached;", f"Loader(cached(dataset, key=...), num_workers={cores}, ...)")
    cause = "items that never change are made in every epoch"
    add(Change("cache", overrides, cause, "cache"), _own(loader, kept, cores))
    return tried, {}


def _count(loader: Iterable[Any]) -> int:
    """Batches of an epoch."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:  # A stream, which need not know.
        return run_pass(loader, None, 1, 10**9, STREAM_SECONDS).done


def _like(loader: DataLoader[Any], workers: int, **changes: Any) -> DataLoader[Any]:
    """The same DataLoader with other workers."""
    settings: dict[str, Any] = {
        "batch_sampler": loader.batch_sampler,
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "prefetch_factor": loader.prefetch_factor if workers else None,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context if workers else None,
    }
    return DataLoader(loader.dataset, **settings | changes)


def _own(loader: DataLoader[Any], dataset: Any, workers: int) -> Loader:
    shuffle = isinstance(loader.sampler, RandomSampler)
    size, drop_last = loader.batch_size or 1, loader.drop_last
    return Loader(dataset, size, workers, shuffle=shuffle, drop_last=drop_last, collate_fn=loader.collate_fn)


class _InThread:
    """The batches of anything, two ahead, made in a thread."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        made: queue.Queue[Any] = queue.Queue(2)
        ended, stop = object(), threading.Event()

        def put(one: object) -> None:
            while not stop.is_set():
                try:
                    return made.put(one, timeout=0.1)
                except queue.Full:
                    continue

        def make() -> None:
            for batch in self._batches:
                put(batch)
                if stop.is_set():
                    return
            put(ended)

        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        try:
            while (batch := made.get()) is not ended:
                yield batch
        finally:
            stop.set()
            thread.join()


# -- the advice


def _advice(
    step: Step | None, tried: Tried, alone: Trial, parts: dict[str, float], not_tried: dict[str, str]
) -> Advice:
    present = tried[PRESENT][1].timing
    done = {name: trial.timing for name, (_, trial) in tried.items() if trial.timing.rounds}
    steps = [one.seconds * (1 - one.waited) / present.batches for one in present.passes]
    rows = [
        Row(change, present.pages / timing.pages_per_second, timing.pages_per_second / present.pages_per_second)
        for name, timing in done.items()
        if (change := tried[name][0]) is not None
    ]
    late = {name: trial.error or "no time left. Pass more seconds" for name, (_, trial) in tried.items()}
    return Advice(
        type(getattr(alone.loader, "dataset", alone.loader)).__name__,
        present.pages,
        present.batches,
        present,
        present.seconds,
        present.wait_share,
        alone.timing.seconds,
        fmean(steps) if step is not None else None,
        rows,
        not_tried=not_tried | {name: why for name, why in late.items() if name not in done},
        stages=parts,
        noisy=[name for name, timing in done.items() if timing.is_noisy],
        others=max(timing.others for timing in done.values()),
        machine=describe_machine(),
        unit="item",
        step_name="the step",
    )
