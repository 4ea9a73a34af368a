"""What happened to each sample of the epoch: written by any worker, read by the main process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.pipeline.sample import Sample

MAPS = ("drawn", "stored", "stale")
CACHED = ("hit", "miss", "invalid")
COUNTS = (
    *("seen", "recovered", "skipped", "dropped_polygons"),
    *(f"maps_{source}" for source in MAPS),
    *("cache_hits", "cache_misses", "cache_invalid"),
)


class Ledger:
    """One row of counts per sample in shared memory. Only one worker has a sample at a time: rows need no lock."""

    def __init__(self, names: Sequence[str], left_out: Sequence[str] = ()) -> None:
        """`left_out` names the pages that never became samples; they count as skipped in every epoch."""
        self._names = names
        self.left_out = list(left_out)
        self._rows = torch.zeros((len(names), len(COUNTS)), dtype=torch.int32).share_memory_()  # type: ignore[no-untyped-call]

    def record(self, sample: Sample) -> None:
        """Note what happened to a sample."""
        self.note([sample.index], rows_of([sample]))

    def note(self, indices: Sequence[int], rows: NDArray[np.int32]) -> None:
        """Note what happened to samples, one row each."""
        self._rows.numpy()[indices] = rows

    def note_cached(self, indices: Sequence[int], outcomes: Sequence[str]) -> None:
        """Correct how samples got into the cache: one that was made just now is not a hit."""
        for index, outcome in zip(indices, outcomes, strict=True):
            if outcome:
                self._rows.numpy()[index, -len(CACHED) :] = [outcome == name for name in CACHED]

    def skip(self, index: int) -> None:
        """Note that a sample could not be used."""
        self._rows.numpy()[index] = [1, 0, 1] + [0] * (len(COUNTS) - 3)

    def reset(self) -> None:
        """Start a new epoch."""
        self._rows.numpy().fill(0)

    def totals(self) -> dict[str, int]:
        """Sums over the epoch so far."""
        totals = dict(zip(COUNTS, self._rows.numpy().sum(axis=0).tolist(), strict=True))
        return totals | {"skipped": totals["skipped"] + len(self.left_out)}

    def files(self, count: str) -> list[str]:
        """Names of the samples that contribute to one of the counts."""
        rows = self._rows[:, COUNTS.index(count)].nonzero().flatten().tolist()
        return (self.left_out if count == "skipped" else []) + [self._names[row] for row in rows]


def rows_of(samples: Sequence[Sample]) -> NDArray[np.int32]:
    """The ledger rows of samples."""
    return np.array(
        [
            [1, bool(sample.recovered), 0, sample.dropped_polygons]
            + [sample.map_source == source for source in MAPS]
            + [sample.cached == outcome for outcome in CACHED]
            for sample in samples
        ],
        dtype=np.int32,
    )
