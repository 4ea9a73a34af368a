"""What a step of the model takes, measured with a few pages: seconds, CPU seconds and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ocr.advisor.measure.model_step import ModelStep, wait_for
from ocr.advisor.measure.process_memory import peak_growth
from ocr.advisor.model.queueing import Consumer
from ocr.pipeline.batch import Batch
from ocr.pipeline.padding import STRIDE

CALLS = 2
"""Timed calls per number of pages, after one that warms up; the fastest counts."""
LONG_SECONDS = 5.0
"""A step that takes longer is measured once: warming up is a small part of it."""
MIN_PAGES = 2
"""From two numbers of pages follows what each page adds to the memory."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What steps of several numbers of pages took, all of one shape."""

    times: dict[int, tuple[float, float]]
    """Seconds and CPU seconds by the number of pages."""
    pixels: float
    """Of each page."""
    first_seconds: float = 0.0
    """Of the first step beyond a later one: compiling, above all."""
    step_bytes: float = 0.0
    """Of any step."""
    page_bytes: float = 0.0
    """Of each page of a step."""

    @property
    def pages(self) -> int:
        """Pages of the largest step."""
        return max(self.times)

    def consumer(self, batch_size: int, pixels: float) -> Consumer:
        """A step of so many pages with so many pixels: in proportion to the nearest that was measured."""
        measured = max((pages for pages in self.times if pages <= batch_size), default=min(self.times))
        factor = batch_size / measured * pixels / self.pixels
        seconds, cpu = self.times[measured]
        return Consumer(factor * seconds, factor * cpu)

    def memory_bytes(self, batch_size: int, pixels: float) -> int:
        """The peak of a step, with weights, gradients and the optimizer's state."""
        return int(self.step_bytes + self.page_bytes * batch_size * pixels / self.pixels)

    def most_pages(self, free_bytes: float, pixels: float) -> float:
        """The largest batch that fits."""
        return max(0.0, (free_bytes - self.step_bytes) / max(1.0, self.page_bytes * pixels / self.pixels))


def page_counts(pages: int) -> list[int]:
    """1, 2, 4, ... up to a number of pages, which is the last.

    >>> page_counts(6), page_counts(1)
    ([1, 2, 4, 6], [1])
    """
    return [*(1 << power for power in range((pages - 1).bit_length())), pages]


def measure_step(
    step: ModelStep,
    batch: Batch,
    counts: Sequence[int],
    max_seconds: float = float("inf"),
    validating: bool = False,
    shapes: int = 1,
) -> StepCosts:
    """Steps with the first 1, 2, ... pages of a batch; larger ones than MIN_PAGES only within `max_seconds`.

    If an epoch has several `shapes`, a compiled model is compiled once more, for any of them: a smaller batch is first.
    """
    run: Callable[[Batch], object] = step.infer if validating else step
    times: dict[int, tuple[float, float]] = {}
    grown: dict[int, int] = {}
    warm_ups = [_smaller(batch)] if shapes > 1 else []
    first, begin = 0.0, time.perf_counter()
    for other in warm_ups:
        first += _time(_call(run, other, step.device))[0]
    for pages in counts:
        took = max(times.values(), default=(0.0, 0.0))[0]
        ahead = time.perf_counter() - begin + 2 * (CALLS + 1) * took
        if pages > MIN_PAGES and times and ahead > max_seconds:
            break
        call = _call(run, {name: value[:pages] for name, value in batch.items()}, step.device)
        warming: list[tuple[float, float]] = []
        if not times:
            first += _time(call)[0]  # Its memory is that of the compiler, too.
        grown[pages] = _peak(lambda call=call, warming=warming: warming.append(_time(call)), step.device)  # type: ignore[misc]
        is_long = warming[0][0] > LONG_SECONDS
        times[pages] = warming[0] if is_long else min(_time(call) for _ in range(CALLS))
    least, most = min(grown), max(grown)
    each = (grown[most] - grown[least]) / (most - least) if most > least else grown[most] / most
    each = max(0.0, each)
    pixels = float(batch["images"].shape[-1] * batch["images"].shape[-2])
    started = max(0.0, first - (1 + len(warm_ups)) * times[min(times)][0])
    return StepCosts(times, pixels, started, step.kept_bytes + grown[most] - each * most, each)


def _smaller(batch: Batch) -> Batch:
    """A batch with a page and a few rows and columns less, so that nothing of its shape is as before."""
    pages = max(1, len(batch["images"]) - 1)
    return {name: value[:pages, ..., :-STRIDE, :-STRIDE] for name, value in batch.items() if torch.is_tensor(value)}


def _call(run: Callable[[Batch], object], part: Batch, device: torch.device) -> Callable[[], None]:
    def call() -> None:
        run(part)
        wait_for(device)

    return call


def _peak(call: Callable[[], object], device: torch.device) -> int:
    """Bytes that a call needs at its peak, where the model is."""
    if device.type != "cuda":
        return peak_growth(call)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    return torch.cuda.max_memory_allocated(device) - before


def _time(call: Callable[[], object]) -> tuple[float, float]:
    cpu, begin = time.process_time(), time.perf_counter()
    call()
    return time.perf_counter() - begin, time.process_time() - cpu
