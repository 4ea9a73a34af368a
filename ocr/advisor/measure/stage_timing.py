"""What the calls of a stage take per page: time, CPU, page faults and bytes."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import cv2

from ocr.errors import GlyphFeedError, StageError
from ocr.pipeline.sample import Sample

DATA_KINDS = ("source", "fixed", "random", "targets", "batch", "device")
"""Between the disk and the model; shares are of their sum."""
_FAULTS_OF = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Step(NamedTuple):
    """One stage of the path, under the name that it has in tables."""

    name: str
    label: str
    kind: str
    run: Callable[..., Any]


class Call(NamedTuple):
    """One call, divided by the number of pages it processed."""

    seconds: float
    cpu_seconds: float
    queued_seconds: float
    minor_faults: float
    major_faults: float
    bytes_out: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """All calls of one stage, per page."""

    name: str
    label: str
    kind: str
    calls: int
    mean_ms: float
    std_ms: float
    min_ms: float
    max_ms: float
    share: float | None
    """Of the data path; None for the model, boxes and scores."""
    cpu_ms: float
    queued_ms: float
    """Ready to run, but waiting for a core: other processes, not the stage, took this time."""
    bytes_out: float
    page_faults: float
    major_page_faults: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, step: Step, calls: list[Call], share: float | None = None) -> StageTimes:
        """Summarise all calls, including those in which a random stage left its page unchanged."""
        times = [1e3 * call.seconds for call in calls]
        means = [fmean(values) for values in zip(*calls, strict=True)]
        _, cpu, queued, minor, major, size = means
        spread = (fmean(times), pstdev(times), min(times), max(times))
        head = (step.name, step.label, step.kind, len(calls))
        return cls(*head, *spread, share, 1e3 * cpu, 1e3 * queued, size, minor + major, major)

    @property
    def idle_ms(self) -> float:
        """Neither computing nor ready to: waiting for a disk, or sleeping."""
        return max(0.0, self.mean_ms - self.cpu_ms - self.queued_ms)

    @property
    def summary(self) -> dict[str, Any]:
        """The times only."""
        kept = ("calls", "mean_ms", "std_ms", "min_ms", "max_ms", "cpu_ms", "queued_ms")
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name in kept}


class Clock:
    """Measures calls one by one, in the thread that makes them."""

    def __init__(self, cpu_clock: Callable[[], float] = time.thread_time, wait: Callable[[], object] | None = None):
        """`wait` returns when the device has no work left; `cpu_clock` may count one thread or all of them."""
        self._cpu_clock, self._wait = cpu_clock, wait
        self._calls: dict[str, tuple[Step, list[Call]]] = {}

    def measure(self, step: Step, *arguments: Any, pages: int = 1) -> Any:
        """Call a stage, and record what it took."""
        if self._wait:
            self._wait()
        usage, queued, cpu, start = _usage(), queued_seconds(), self._cpu_clock(), time.perf_counter()
        result = run_named(step, *arguments)
        if self._wait:
            self._wait()
        seconds, cpu = time.perf_counter() - start, self._cpu_clock() - cpu
        queued = queued_seconds() - queued
        minor, major = (after - then for after, then in zip(_usage(), usage, strict=True))
        _, calls = self._calls.setdefault(step.name, (step, []))
        spent = (seconds, cpu, queued, minor, major, bytes_of(result))
        calls.append(Call(*(figure / pages for figure in spent)))
        return result

    def stage_times(self) -> list[StageTimes]:
        """One entry per stage, in the order of their first calls."""
        means = {name: fmean(call.seconds for call in calls) for name, (_, calls) in self._calls.items()}
        in_data = {name for name, (step, _) in self._calls.items() if step.kind in DATA_KINDS}
        total = sum(means[name] for name in in_data)
        return [
            StageTimes.of(step, calls, means[name] / total if name in in_data else None)
            for name, (step, calls) in self._calls.items()
        ]


def _usage() -> tuple[int, int]:
    usage = resource.getrusage(_FAULTS_OF)
    return usage.ru_minflt, usage.ru_majflt


def queued_seconds() -> float:
    """How long this thread has waited for a core so far; 0 if the system does not report it."""
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        return int(os.read(descriptor, 100).split()[1]) / 1e9
    finally:
        os.close(descriptor)


def run_named(step: Step, *arguments: Any, pages: int = 1) -> Any:
    """Call a stage without measuring it; an unexpected error is raised as a StageError with the stage's name."""
    try:
        return step.run(*arguments)
    except (GlyphFeedError, MemoryError):
        raise
    except Exception as error:
        page = next((value for value in arguments if isinstance(value, Sample)), None)
        problem = f"{step.label}{f' on {page.filename}' if page else ''}: {type(error).__name__}: {error}"
        raise StageError(problem, setting=step.label, path=page.path if page else None) from error


def bytes_of(result: Any) -> int:
    """Bytes of all arrays, tensors and encoded pages in the output of a stage."""
    if isinstance(result, Sample):
        polygons = result.polygons
        parts: Any = (result.encoded, result.image, result.maps, polygons.vertices, polygons.offsets, polygons.ignore)
        return sum(map(bytes_of, parts))
    if isinstance(result, dict):
        return sum(map(bytes_of, result.values()))
    if isinstance(result, list | tuple):
        return sum(map(bytes_of, result))
    return len(result) if isinstance(result, bytes) else int(getattr(result, "nbytes", 0))


@contextmanager
def one_opencv_thread() -> Iterator[None]:
    """Keep OpenCV from starting threads, whose CPU time would not be counted."""
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(threads)
