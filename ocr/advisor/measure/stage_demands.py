"""What every stage needs per page on this machine: seconds, CPU seconds, and whether workers can run it at once."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean, median
from typing import Any, NamedTuple

import torch

from ocr.advisor.measure.data_path import DataPath
from ocr.advisor.measure.stage_timing import Step, run_named
from ocr.advisor.model.queueing import DISK, GIL, Demand
from ocr.datasets.page_dataset import PageDataset
from ocr.pipeline.cut import Cut

SHORT_SECONDS = 0.0002
"""A shorter stage is not run in several threads: starting them takes as long, and it cannot be the bottleneck."""
MOSTLY = 0.75
"""A stage that is on a core for a larger share of its time counts as computing all the time."""
IDLE_FROM = 1.25
"""A thread that is off its core this many times as long as one that only computes waits for something else."""
SERIAL_RATIO = 1.5
"""If two waiting threads take this many times as long as one, they wait for each other."""
HELD_CALLS, HELD_SECONDS, NAP_SECONDS = 3, 0.08, 0.0005
HELD_FROM = 0.4
"""A stage that holds the GIL for a smaller share of its time does not slow two workers down."""
_BURNT = bytes(32 << 20)


class Measured(NamedTuple):
    """What a page needs, and the seconds that one CPU second takes on cores that other processes use too."""

    demands: tuple[Demand, ...]
    core_seconds: float

    def busy(self, seconds: float, cpu_seconds: float) -> float:
        """The seconds in which a core was used or waited for."""
        return min(seconds, cpu_seconds * self.core_seconds)


def measure_demands(
    dataset: PageDataset, indices: Sequence[int], workers: int, cores: int, epochs: int = 2
) -> Measured:
    """Demands of all stages on these pages; a first pass reads the files into memory."""
    path = DataPath(dataset, torch.device("cpu"))
    at_once = max(2, min(workers, cores)) if cores > 1 else 2
    with ThreadPoolExecutor(at_once) as pool:
        clock = ScalingClock(pool, at_once)
        path.run_batch(indices[:2], 0)
        for epoch in range(epochs):
            clock.calibrate()
            path.run_batch(indices, epoch, clock.measure)
        return clock.demands(contended=workers > 1)


def cached_kinds(cut: Cut) -> frozenset[str]:
    """The parts of the path that a page from the cache skips."""
    return frozenset([*("source", "fixed") * cut.page, *["targets"] * cut.maps])


class ScalingClock:
    """Calls each stage once, then in several threads at the same time."""

    def __init__(self, pool: ThreadPoolExecutor, at_once: int) -> None:
        self._pool, self._at_once = pool, at_once
        self._alone: dict[str, list[tuple[float, float]]] = {}
        self._kinds: dict[str, str] = {}
        self._together: dict[str, list[float]] = {}
        """Seconds of several threads at once, divided by the seconds of one alone."""
        self._held: dict[str, list[float]] = {}
        """Share of the time in which no other thread got the GIL."""
        self._core_seconds: list[float] = []

    def calibrate(self) -> None:
        """Measure work that never waits for other threads: how much of the cores is available now."""
        for _ in range(3):
            seconds, cpu = _time(_burn)
            self._core_seconds.append(seconds / cpu)
            for name, burn in (("free", _burn), ("held", _burn_in_python)):
                self._held.setdefault(name, []).append(self._held_share(burn))

    def measure(self, step: Step, *arguments: Any, pages: int = 1) -> Any:
        """Call a stage, and record what it takes alone and in several threads."""
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

    def seconds_of(self, name: str) -> list[float]:
        """What each call of a stage took alone, per page."""
        return [seconds for seconds, _ in self._alone[name]]

    def _run_together(self, call: Callable[[], object]) -> float:
        """Seconds until all threads that start together are done."""
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
        """Ask for the GIL repeatedly while another thread runs the stage: the share of time spent waiting for it."""
        end = time.perf_counter() + HELD_SECONDS

        def run() -> None:
            while time.perf_counter() < end:
                call()

        running, waited, asked = self._pool.submit(run), 0.0, time.perf_counter()
        begin = asked
        while True:
            time.sleep(NAP_SECONDS)
            now = time.perf_counter()
            waited += max(0.0, now - asked - 2 * NAP_SECONDS)
            asked = now
            # Asked last: on a busy machine the stage may be done before this thread runs for the first time.
            if running.done():
                break
        running.result()
        # On a busy machine the other thread may have ended before this one came to ask.
        return waited / max(1e-9, asked - begin)

    def demands(self, contended: bool) -> Measured:
        """One demand per stage, in the order of the path."""
        # A stage may lose its core a little more often than the reference without waiting for anything.
        core_seconds = max(1.0, median(self._core_seconds)) * IDLE_FROM
        return Measured(tuple(self._demand(name, core_seconds, contended) for name in self._alone), core_seconds)

    def _demand(self, name: str, core_seconds: float, contended: bool) -> Demand:
        seconds, cpu = (fmean(values) for values in zip(*self._alone[name], strict=True))
        busy = min(seconds, cpu * core_seconds)
        if busy > MOSTLY * seconds:
            busy = seconds
        together = self._together.get(name, [])
        computes = busy > seconds / 2
        serial = self._gil_share(name) if computes else _waiting_share(together, self._at_once)
        if serial:
            resource = GIL if computes else DISK
            return Demand(name, seconds, busy, seconds * serial, resource, kind=self._kinds[name])
        # Threads that share the memory bus or a core slow each other down.
        factor = max(1.0, median(together)) if contended and together else 1.0
        slowed = busy * factor + (seconds - busy)
        return Demand(name, slowed, busy * factor, contention=slowed / max(1e-9, seconds), kind=self._kinds[name])

    def _gil_share(self, name: str) -> float:
        """Share of a stage that holds the GIL, beyond the time that any thread waits for a core."""
        if not self._held.get(name):
            return 0.0
        here, free, held = (median(self._held[one]) for one in (name, "free", "held"))
        share = (here - free) / max(0.1, held - free)
        return min(1.0, share) if share > HELD_FROM else 0.0


def _waiting_share(together: Sequence[float], at_once: int) -> float:
    """Share of a waiting stage in which only one thread at a time can wait."""
    if not together:
        return 0.0
    ratio = sorted(together)[len(together) // 4]
    return min(1.0, (ratio - 1) / (at_once - 1)) if ratio > SERIAL_RATIO else 0.0


def _time(call: Callable[[], object]) -> tuple[float, float]:
    cpu, begin = time.thread_time(), time.perf_counter()
    call()
    return time.perf_counter() - begin, time.thread_time() - cpu


def _burn() -> None:
    """Compute for as long as a large page takes, without the GIL."""
    hashlib.sha256(_BURNT).digest()


def _burn_in_python() -> None:
    """Compute with the GIL."""
    sum(range(100_000))
