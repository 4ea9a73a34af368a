"""Reading ahead by plan: the system is told which bytes of a cache larger than memory the coming batches need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.cache.store import Store
from ocr.system import free_memory

MAX_AHEAD_BYTES = 64 << 20
"""4 MB ahead gave 670 pages/s, 16 MB 740, 48 MB 783 in 600 MB of memory: there is little to gain beyond."""
FREE_SHARE = 8
"""At most this fraction of the free memory: what is read too early is dropped again before it is used."""
STEPS = 4
MIN_SAMPLE_BYTES = 64 << 10
"""Samples that are not stored count as this much, so that looking ahead ends."""
Advise = Callable[[Store, int, int], None]


class ReadAhead:
    """Announces the samples of one pass in steps: sorted by offset, a number of bytes ahead of the plan."""

    def __init__(
        self,
        open_store: Callable[[], Store | None],
        samples: NDArray[np.signedinteger[Any]] | range,
        ahead_bytes: int,
        advise: Advise = Store.will_need,
    ) -> None:
        """`samples` are those of the pass, in order; a store that is replaced meanwhile is asked for again."""
        self._open_store, self._samples, self._advise = open_store, samples, advise
        self._ahead_bytes, self._step_bytes = ahead_bytes, max(1, ahead_bytes // STEPS)
        self._planned = self._announced = self._batch = 0
        self._sizes: deque[int] = deque()
        """Bytes of the samples from the latest batch to the last that was announced."""
        self._lead_bytes = 0

    def __call__(self, count: int) -> None:
        """The next `count` samples are about to be made: announce them, if they are not yet, and those after them."""
        for _ in range(min(self._batch, len(self._sizes))):
            self._lead_bytes -= self._sizes.popleft()
        is_first = not self._planned
        self._announced = max(self._announced, self._planned)
        self._batch, self._planned = count, self._planned + count
        store = self._open_store()
        # The first batch does not wait until all that is read ahead was asked for.
        while store is not None and self._announced < len(self._samples):
            has_room = not is_first and self._lead_bytes + self._step_bytes <= self._ahead_bytes
            if self._announced >= self._planned and not has_room:
                break
            self._announce(store)

    def _announce(self, store: Store) -> None:
        """One step."""
        ranges: list[tuple[int, int]] = []
        step = 0
        while step < self._step_bytes and self._announced < len(self._samples):
            index = int(self._samples[self._announced])
            row = store.row(index)
            needed = (store.ranges(index, row) if row is not None else None) or []
            size = max(MIN_SAMPLE_BYTES, sum(length for _, length in needed))
            ranges += needed
            step += size
            self._sizes.append(size)
            self._announced += 1
        self._lead_bytes += step
        for start, length in merged(ranges):
            self._advise(store, start, length)


def merged(ranges: Iterable[tuple[int, int]], gap: int = 4096) -> Iterator[tuple[int, int]]:
    """Offsets and lengths in the order of the file, those that touch or share a disk block as one.

    >>> list(merged([(90_000, 10), (0, 100), (128, 50)]))
    [(0, 178), (90000, 10)]
    """
    start, end = 0, -1
    for offset, length in sorted(ranges):
        if end >= 0 and offset <= end + gap:
            end = max(end, offset + length)
            continue
        if end >= 0:
            yield start, end - start
        start, end = offset, offset + length
    if end >= 0:
        yield start, end - start


def read_ahead(
    open_store: Callable[[], Store | None], samples: NDArray[np.signedinteger[Any]] | range
) -> ReadAhead | None:
    """For one pass over a cache; None if it fits into memory, or if the system takes no advice."""
    store = open_store()
    if store is None or not store.is_large():
        return None
    return ReadAhead(open_store, samples, min(MAX_AHEAD_BYTES, free_memory() // FREE_SHARE))
