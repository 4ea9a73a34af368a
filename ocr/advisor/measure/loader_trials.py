"""Other makers of batches, tried on a few of them: worker processes, and NVIDIA DALI."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from importlib.util import find_spec
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from ocr.errors import GlyphFeedError
from ocr.pipeline.batch import Batch, collate

DALI_BATCHES = 6


class EngineTrial(NamedTuple):
    """Seconds until the first batch beyond those of a batch, and seconds of a batch."""

    start_seconds: float
    batch_seconds: float


def try_processes(dataset: Any, plan: Sequence[Sequence[int]], workers: int) -> EngineTrial:
    """Torch's DataLoader, with workers that are started for these batches."""
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=list(plan),  # type: ignore[arg-type]
        num_workers=workers,
        collate_fn=lambda items: collate(items, dataset.targets),
    )
    return _time(batches, len(plan), workers)


def dali_loader(dataset: Any, batch_size: int, workers: int, **settings: Any) -> Any:
    """The loader of `use_dali=true`; None where DALI is not installed, or cannot do what the stages do."""
    if find_spec("nvidia") is None or find_spec("nvidia.dali") is None:
        return None
    try:
        from ocr.dali.graph import ocr_pipeline
        from ocr.dali.loader import DALIDataLoader

        pipeline = ocr_pipeline(dataset, batch_size, max(1, workers))
        return DALIDataLoader(pipeline, len(dataset), batch_size, num_workers=workers, **settings)
    except GlyphFeedError:
        return None


def try_dali(loader: Any) -> EngineTrial:
    """A few batches, behind some that warm DALI's memory up."""
    batches = min(DALI_BATCHES, len(loader))
    for _ in range(2):
        with closing(iter(loader)) as passed:
            trial = _time(passed, batches, 1)
    return trial


def _time(batches: Iterable[Batch | None], count: int, workers: int) -> EngineTrial:
    begin, came = time.perf_counter(), []
    for _ in batches:
        came.append(time.perf_counter() - begin)
        if len(came) == count:
            break
    # All workers begin at once, so the first batches come together.
    first = min(workers, len(came) - 1)
    each = (came[-1] - came[first - 1]) / (len(came) - first) if first and len(came) > first else came[-1] / len(came)
    return EngineTrial(max(0.0, came[0] - each), each)
