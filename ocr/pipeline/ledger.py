"""What happened to each sample of the epoch: written by any worker, read by the main process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


_POLYGONS = COUNTS.index("dropped_polygons")
_FLAGS = [count for count in range(len(COUNTS)) if count != _POLYGONS]
_BITS = np.array([1 << bit for bit in range(len(_FLAGS))], dtype=np.uint32)
_CHUNK = 1 << 20


class Ledger:
    """What happened to each sample, 4 bytes in shared memory: a bit per count, and above them the dropped polygons.

    Only one worker has a sample at a time: samples need no lock.
    """

    def __init__(self, names: Sequence[str], left_out: Sequence[str] = ()) -> None:
        """`left_out` names the pages that never became samples; they count as skipped in every epoch."""
        self._names = names
        self.left_out = list(left_out)
        self._shared = torch.zeros(len(names), dtype=torch.int32).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def _packed(self) -> NDArray[np.uint32]:
        packed: NDArray[np.uint32] = self._shared.numpy().view(np.uint32)
        return packed

    def record(self, sample: Sample) -> None:
        """Note what happened to a sample."""
        self.note([sample.index], rows_of([sample]))

    def note(self, indices: Sequence[int], rows: NDArray[np.int32]) -> None:
        """Note what happened to samples, one row each."""
        self._packed[indices] = rows[:, _FLAGS] @ _BITS | rows[:, _POLYGONS].astype(np.uint32) << len(_FLAGS)

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

    def totals(self) -> dict[str, int]:
        """Sums over the epoch so far."""
        totals = dict.fromkeys(COUNTS, 0)
        for start in range(0, len(self._packed), _CHUNK):
            chunk = self._packed[start : start + _CHUNK]
            for name in COUNTS:
                totals[name] += int(_of(chunk, name).sum())
        return totals | {"skipped": totals["skipped"] + len(self.left_out)}

    def files(self, count: str) -> list[str]:
        """Names of the samples that contribute to one of the counts."""
        found = np.flatnonzero(_of(self._packed, count)).tolist()
        return (self.left_out if count == "skipped" else []) + [self._names[index] for index in found]


def _bit(count: str) -> np.uint32:
    return np.uint32(_BITS[_FLAGS.index(COUNTS.index(count))])


def _of(packed: NDArray[np.uint32], count: str) -> NDArray[Any]:
    """One of the counts of samples."""
    return packed >> len(_FLAGS) if count == "dropped_polygons" else packed & _bit(count) != 0


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
