"""What every stage asks for on this machine: seconds and CPU of a page, and whether two workers can do it at once."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import torch

from ocr.advisor.measure.data_path import DataPath
from ocr.advisor.measure.stage_timing import Step, run_named
from ocr.advisor.model.queueing import DISK, GIL, Demand
from ocr.pipeline.cut import Cut

SHORT_SECONDS = 0.0002
"""A stage that takes less is not worth the start of two threads, and holds up nobody."""
MOSTLY = 0.75
"""A stage that is on a core for more of its time than this does nothing else."""
IDLE_FROM = 1.25
"""A thread that is away from its core for longer than others that only compute is waiting for something else."""
SERIAL_RATIO = 1.5
"""Two that wait take so many times as long as one: they wait for each other."""
HELD_CALLS, HELD_SECONDS, NAP_SECONDS = 3, 0.08, 0.0005
HELD_FROM = 0.4
"""A stage that holds the interpreter for less of its time does not hold up two workers."""
_BURNT = bytes(32 << 20)


class Measured(NamedTuple):
    """What a page asks for, and how long computing takes on cores that others use too, for each second of the CPU."""

    demands: tuple[Demand, ...]
    core_seconds: float

    def busy(self, seconds: float, cpu_seconds: float) -> float:
        """The part of some seconds in which a core was needed: had, or waited for."""
        return min(seconds, cpu_seconds * self.core_seconds)


def measure_demands(dataset: Any, indices: Sequence[int], workers: int, cores: int, epochs: int = 2) -> Measured:
    """Demands of all stages, from these pages; the first passes warm up files and compiled kernels."""
    path = DataPath(dataset, torch.device("cpu"))
    at_once = max(2, min(workers, cores)) if cores > 1 else 2
    with ThreadPoolExecutor(at_once) as pool:
        clock = _ScalingClock(pool, at_once)
        path.run_batch(indices[:2], 0)
        for epoch in range(epochs):
            clock.refer()
            path.run_batch(indices, epoch, clock.measure)
        return clock.demands(contended=workers > 1)


def spared_kinds(cut: Cut) -> frozenset[str]:
    """The parts of the path that pages of a cache have behind them."""
    return frozenset([*("source", "fixed") * cut.page, *["targets"] * cut.maps])


class _ScalingClock:
    """Calls each stage once, and then in several threads at once."""

    def __init__(self, pool: ThreadPoolExecutor, at_once: int) -> None:
        self._pool, self._at_once = pool, at_once
        self._alone: dict[str, list[tuple[float, float]]] = {}
        self._kinds: dict[str, str] = {}
        self._together: dict[str, list[float]] = {}
        """Seconds of several at once, in seconds of one alone."""
        self._held: dict[str, list[float]] = {}
        """Share of the time in which nobody else got the interpreter."""
        self._core_seconds: list[float] = []

    def refer(self) -> None:
        """How it goes with work that never waits for other threads: what is left of the cores just now."""
        for _ in range(3):
            seconds, cpu = _time(_burn)
            self._core_seconds.append(seconds / cpu)
            for name, burn in (("free", _burn), ("held", _burn_in_python)):
                self._held.setdefault(name, []).append(self._held_share(burn))

    def measure(self, step: Step, *arguments: Any, pages: int = 1) -> Any:
        """Call a stage, and note what it takes alone and together with others."""
        result: Any = None

        def call() -> None:
            nonlocal result
            result = run_named(step, *arguments)

        seconds, cpu = _time(call)
        self._kinds[step.name] = step.kind
        self._alone.setdefault(step.name, []).append((seconds / pages, cpu / pages))
        if seconds > SHORT_SECONDS:
            again = lambda: run_named(step, *arguments)  # noqa: E731
            self._together.setdefault(step.name, []).append(self._run_together(again) / seconds)
            held = self._held.setdefault(step.name, [])
            if len(held) < HELD_CALLS and cpu > seconds / 4:
                held.append(self._held_share(again))
        return result

    def _run_together(self, call: Callable[[], object]) -> float:
        """Seconds until all are done who began at once."""
        gate = threading.Barrier(self._at_once + 1)

        def run() -> float:
            gate.wait()
            call()
            return time.perf_counter()

        running = [self._pool.submit(run) for _ in range(self._at_once)]
        gate.wait()
        begin = time.perf_counter()
        return max(future.result() for future in running) - begin

    def _held_share(self, call: Callable[[], object]) -> float:
        """Ask for the interpreter again and again while another thread is in the stage: how long it takes to get it."""
        end = time.perf_counter() + HELD_SECONDS

        def run() -> None:
            while time.perf_counter() < end:
                call()

        running, waited, asked = self._pool.submit(run), 0.0, time.perf_counter()
        begin = asked
        while not running.done():
            time.sleep(NAP_SECONDS)
            now = time.perf_counter()
            waited += max(0.0, now - asked - 2 * NAP_SECONDS)
            asked = now
        running.result()
        return waited / (asked - begin)

    def demands(self, contended: bool) -> Measured:
        """One of each stage, in the order of the path."""
        # A stage may lose its core somewhat more often than the reference, and is no idler for that.
        core_seconds = max(1.0, median(self._core_seconds)) * IDLE_FROM
        return Measured(tuple(self._demand(name, core_seconds, contended) for name in self._alone), core_seconds)

    def _demand(self, name: str, core_seconds: float, contended: bool) -> Demand:
        seconds, cpu = (fmean(values) for values in zip(*self._alone[name], strict=True))
        busy = min(seconds, cpu * core_seconds)
        if busy > MOSTLY * seconds:
            busy = seconds
        together = self._together.get(name, [])
        computes = busy > seconds / 2
        serial = self._interpreter_share(name) if computes else _waiting_share(together, self._at_once)
        if serial:
            resource = GIL if computes else DISK
            return Demand(name, seconds, busy, seconds * serial, resource, kind=self._kinds[name])
        # Others on the memory bus, or on the same core, make everybody slower who computes.
        factor = max(1.0, median(together)) if contended and together else 1.0
        slowed = busy * factor + (seconds - busy)
        return Demand(name, slowed, busy * factor, contention=slowed / max(1e-9, seconds), kind=self._kinds[name])

    def _interpreter_share(self, name: str) -> float:
        """How much of a stage holds the interpreter: beyond what one waits for a core anyway."""
        if not self._held.get(name):
            return 0.0
        here, free, held = (median(self._held[one]) for one in (name, "free", "held"))
        share = (here - free) / max(0.1, held - free)
        return min(1.0, share) if share > HELD_FROM else 0.0


def _waiting_share(together: Sequence[float], at_once: int) -> float:
    """How much of a stage that waits can only be waited for one at a time."""
    if not together:
        return 0.0
    ratio = sorted(together)[len(together) // 4]
    return min(1.0, (ratio - 1) / (at_once - 1)) if ratio > SERIAL_RATIO else 0.0


def _time(call: Callable[[], object]) -> tuple[float, float]:
    cpu, begin = time.thread_time(), time.perf_counter()
    call()
    return time.perf_counter() - begin, time.thread_time() - cpu


def _burn() -> None:
    """As long as a large page takes, without the interpreter."""
    hashlib.sha256(_BURNT).digest()


def _burn_in_python() -> None:
    """The same, with the interpreter."""
    sum(range(100_000))


def choose_pages(dataset: Any, count: int) -> list[int]:
    """Pages of all sizes, in proportion: every n-th by the bytes of its file."""
    sizes = [(size_of(dataset, index), index) for index in range(len(dataset))]
    places = np.unique(np.linspace(0, len(sizes) - 1, min(count, len(sizes))).round().astype(int))
    ordered = sorted(sizes)
    return [ordered[place][1] for place in places]


def size_of(dataset: Any, index: int) -> int:
    """Bytes of a page's file; 0 where it is gone."""
    signature = dataset.source.signature(index)
    return signature.size if signature else 0
