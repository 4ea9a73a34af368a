"""What batches that come from anywhere cost: making one, using one, and whether both happen at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from ocr.advisor.measure.sending import Sending, measure_sending
from ocr.advisor.measure.timed_batches import Span, run_epoch
from ocr.advisor.model.queueing import Consumer, Demand
from ocr.errors import ConfigError, DataError

LOADER = "the loader"
STREAMED_BATCHES = 8


@dataclass(frozen=True, slots=True)
class StreamCosts:
    """What was measured, per batch."""

    batches: int
    """Per epoch; a few if nobody knows."""
    loading: Demand
    consumer: Consumer
    overlaps: bool
    """Whether the next batch is made while a step runs."""
    sending: Sending | None
    """Of a worker process, which a stream of torch without one could have."""
    spans: list[Span]


def measure_stream(batches: Iterable[Any], step: Callable[[Any], object] | None, count: int | None) -> StreamCosts:
    """A few batches without the step, then a few with it; `count` are the batches of an epoch, if known."""
    passed = iter(batches)
    cpu, begin = time.process_time(), time.perf_counter()
    made = _mean(run_epoch(islice(passed, STREAMED_BATCHES))[1], "wait", batches)
    on_core = min(1.0, (time.process_time() - cpu) / (time.perf_counter() - begin))
    kept: list[Any] = []
    cpu = time.process_time()

    def use(batch: Any) -> None:
        kept[:] = [batch]
        if step is not None:
            step(batch)

    spans = run_epoch(islice(passed, STREAMED_BATCHES), use)[1]
    waited, computed = (_mean(spans, what, batches) for what in ("wait", "compute"))
    step_cpu = max(0.0, (time.process_time() - cpu) / (len(spans) // 2) - made * on_core)
    # Workers make batches ahead, and without one nobody does; of other iterables only the waits tell.
    workers = getattr(batches, "num_workers", None)
    overlaps = waited < max(made - computed, made / 2) if workers is None else workers > 0
    sending = None
    if not overlaps and isinstance(batches, DataLoader) and isinstance(batches.dataset, IterableDataset):
        sending = measure_sending(batches, kept[0], 1, made, cores=1)
    consumer = Consumer(computed, min(step_cpu, computed))
    return StreamCosts(
        count or STREAMED_BATCHES, Demand(LOADER, made, made * on_core), consumer, overlaps, sending, spans
    )


def count_batches(batches: Iterable[Any], by_reading: bool) -> int | None:
    """Batches of an epoch; None if they are not known and not to be read all."""
    if by_reading:
        if iter(batches) is batches:
            name = type(batches).__name__
            raise ConfigError(
                f"verify=True: a {name} can be read only once. Give what starts anew with every pass",
                setting="verify",
                value=True,
            )
        return sum(1 for _ in batches)
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:
        return None


def _mean(spans: Sequence[Span], what: str, batches: Iterable[Any]) -> float:
    """Of a few batches, without the first, which may start or compile something, and the end of the last."""
    seconds = [span.end_s - span.start_s for span in spans if span.what == what][1:]
    seconds = seconds[:-1] if what == "wait" else seconds
    if not seconds:
        raise DataError(
            f"{type(batches).__name__} gives fewer than {2 * STREAMED_BATCHES} batches. Give one with more",
            setting="loader",
            value=batches,
        )
    return sum(seconds) / len(seconds)
