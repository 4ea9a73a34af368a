"""What happened to each sample of the epoch: written by any worker, read by the main process."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ocr.pipeline.sample import Sample

MAPS = ("drawn", "stored", "stale")
CACHED = ("hit", "miss", "invalid")
COUNTS = (
    *("seen", "recovered", "skipped", "dropped_polygons"),
    *(f"maps_{source}" for source in MAPS),
    *("cache_hits", "cache_misses", "cache_invalid"),
)


class Ledger:
    """One row a sample in shared memory. A sample is in one worker at a time, so rows need no lock."""

    def __init__(self, names: Sequence[str], left_out: Sequence[str] = ()) -> None:
        """`left_out` names the pages that never became samples; they count as skipped in every epoch."""
        self._names = names
        self.left_out = list(left_out)
        self._rows = torch.zeros((len(names), len(COUNTS)), dtype=torch.int32).share_memory_()  # type: ignore[no-untyped-call]

    def record(self, sample: Sample) -> None:
        """Note what happened to a sample on its way."""
        row = [1, int(bool(sample.recovered)), 0, sample.dropped_polygons]
        row += [int(sample.map_source == source) for source in MAPS]
        row += [int(sample.cached == outcome) for outcome in CACHED]
        self._rows[sample.index] = torch.tensor(row, dtype=torch.int32)

    def skip(self, index: int) -> None:
        """Note that a sample could not be used."""
        self._rows[index] = torch.tensor([1, 0, 1] + [0] * (len(COUNTS) - 3), dtype=torch.int32)

    def reset(self) -> None:
        """Start a new epoch."""
        self._rows.zero_()

    def totals(self) -> dict[str, int]:
        """Sums over the epoch so far."""
        totals = dict(zip(COUNTS, self._rows.sum(dim=0).tolist(), strict=True))
        return totals | {"skipped": totals["skipped"] + len(self.left_out)}

    def files(self, count: str) -> list[str]:
        """Names of the samples that contribute to one of the counts."""
        rows = self._rows[:, COUNTS.index(count)].nonzero().flatten().tolist()
        return (self.left_out if count == "skipped" else []) + [self._names[row] for row in rows]
