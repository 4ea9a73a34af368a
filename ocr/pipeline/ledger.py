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


_FLAGS = {name: 1 << bit for bit, name in enumerate(count for count in COUNTS if count not in POLYGON_COUNTS)}
_MAP_FLAGS = {source: _FLAGS[f"maps_{source}"] for source in MAPS}
_CACHE_FLAGS = dict(
    zip(CACHED, (_FLAGS[name] for name in ("cache_hits", "cache_misses", "cache_invalid")), strict=True)
)
# The counts of polygons are above the flags. A count larger than its bits stays at their largest number.
_WIDTHS = (24, 15, 15)
_LARGEST = [(1 << width) - 1 for width in _WIDTHS]
_SHIFTS = [len(_FLAGS) + sum(_WIDTHS[:which]) for which in range(len(_WIDTHS))]
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
        self._packed: NDArray[np.int64] = self._shared.numpy()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _packed=state["_shared"].numpy())

    def record(self, sample: Sample) -> None:
        """Note what happened to a sample."""
        self._packed[sample.index] = _pack(sample)

    def skip(self, index: int) -> None:
        """Note that a sample could not be used."""
        self._packed[index] = _FLAGS["seen"] | _FLAGS["skipped"]

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


def _of(packed: NDArray[np.int64], count: str) -> NDArray[Any]:
    """One of the counts of samples."""
    if count not in POLYGON_COUNTS:
        flags: NDArray[np.bool_] = packed & _FLAGS[count] != 0
        return flags
    which = POLYGON_COUNTS.index(count)
    polygons: NDArray[np.int64] = packed >> _SHIFTS[which] & _LARGEST[which]
    return polygons


def _pack(sample: Sample) -> int:
    """The row of a sample, in Python: for one sample that is ten times as fast as NumPy."""
    packed = _FLAGS["seen"] | _MAP_FLAGS.get(sample.map_source, 0) | _CACHE_FLAGS.get(sample.cached, 0)
    if sample.recovered:
        packed |= _FLAGS["recovered"]
    if sample.dropped_polygons or sample.crossed_polygons or sample.simplified_polygons:
        for name, largest, shift in zip(POLYGON_COUNTS, _LARGEST, _SHIFTS, strict=True):
            packed |= min(max(getattr(sample, name), 0), largest) << shift
    return packed
