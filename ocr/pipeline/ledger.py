"""What happened to each sample of the epoch: written by any worker, read by the main process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.pipeline.sample import POLYGON_COUNTS, Sample

MAPS = ("drawn", "stored", "stale")
CACHED = ("hit", "miss", "invalid")
COUNTS = (
    *("seen", "recovered", "skipped", *POLYGON_COUNTS),
    *(f"maps_{source}" for source in MAPS),
    *("cache_hits", "cache_misses", "cache_invalid"),
)


_POLYGONS = [COUNTS.index(count) for count in POLYGON_COUNTS]
_FLAGS = [count for count in range(len(COUNTS)) if count not in _POLYGONS]
_BITS = np.array([1 << bit for bit in range(len(_FLAGS))], dtype=np.int64)
# The counts of polygons are above the flags. A count larger than its bits stays at their largest number.
_WIDTHS = np.array([24, 15, 15])
_LARGEST = (1 << _WIDTHS) - 1
_SHIFTS = len(_FLAGS) + np.cumsum(_WIDTHS) - _WIDTHS
_CHUNK = 1 << 20


class Ledger:
    """What happened to each sample, 8 bytes in shared memory: a bit per count, and above them the counts of polygons.

    Only one worker has a sample at a time: samples need no lock.
    """

    def __init__(self, names: Sequence[str], left_out: Sequence[str] = ()) -> None:
        """`left_out` names the pages that never became samples; they count as skipped in every epoch."""
        self._names = names
        self.left_out = list(left_out)
        self._shared = torch.zeros(len(names), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def _packed(self) -> NDArray[np.int64]:
        packed: NDArray[np.int64] = self._shared.numpy()
        return packed

    def record(self, sample: Sample) -> None:
        """Note what happened to a sample."""
        self.note([sample.index], rows_of([sample]))

    def note(self, indices: Sequence[int], rows: NDArray[np.int32]) -> None:
        """Note what happened to samples, one row each."""
        polygons = rows[:, _POLYGONS].astype(np.int64).clip(0, _LARGEST) << _SHIFTS
        self._packed[indices] = rows[:, _FLAGS] @ _BITS + polygons.sum(axis=1)

    def note_cached(self, indices: Sequence[int], outcomes: Sequence[str]) -> None:
        """Correct how samples got into the cache: one that was made just now is not a hit."""
        bits = dict(zip(CACHED, _BITS[-len(CACHED) :], strict=True))
        for index, outcome in zip(indices, outcomes, strict=True):
            if outcome:
                self._packed[index] = self._packed[index] & ~sum(bits.values()) | bits[outcome]

    def skip(self, index: int) -> None:
        """Note that a sample could not be used."""
        self._packed[index] = _bit("seen") | _bit("skipped")

    def reset(self) -> None:
        """Start a new epoch."""
        self._packed.fill(0)

    def totals(self, counts: Sequence[str] = COUNTS) -> dict[str, int]:
        """Sums over the epoch so far, of all counts or of some."""
        totals = {name: len(self.left_out) if name == "skipped" else 0 for name in counts}
        for start in range(0, len(self._packed), _CHUNK):
            chunk = self._packed[start : start + _CHUNK]
            for name in counts:
                totals[name] += int(_of(chunk, name).sum())
        return totals

    def files(self, count: str) -> list[str]:
        """Names of the samples that contribute to one of the counts."""
        found = np.flatnonzero(_of(self._packed, count)).tolist()
        return (self.left_out if count == "skipped" else []) + [self._names[index] for index in found]


def _bit(count: str) -> np.int64:
    return np.int64(_BITS[_FLAGS.index(COUNTS.index(count))])


def _of(packed: NDArray[np.int64], count: str) -> NDArray[Any]:
    """One of the counts of samples."""
    if count not in POLYGON_COUNTS:
        flags: NDArray[np.bool_] = packed & _bit(count) != 0
        return flags
    which = POLYGON_COUNTS.index(count)
    polygons: NDArray[np.int64] = packed >> _SHIFTS[which] & _LARGEST[which]
    return polygons


def rows_of(samples: Sequence[Sample]) -> NDArray[np.int32]:
    """The ledger rows of samples."""
    return np.array(
        [
            [1, bool(sample.recovered), 0]
            + [getattr(sample, count) for count in POLYGON_COUNTS]
            + [sample.map_source == source for source in MAPS]
            + [sample.cached == outcome for outcome in CACHED]
            for sample in samples
        ],
        dtype=np.int32,
    )
