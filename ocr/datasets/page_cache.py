"""PageCache: the cache of a dataset as its loaders use it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from ocr.cache.cache import Cache
from ocr.cache.readahead import ReadAhead, read_ahead
from ocr.loader.protocol import CachedBatch
from ocr.pipeline.batch import are_consecutive, as_batch
from ocr.pipeline.cut import Cut
from ocr.pipeline.ledger import Ledger, rows_of
from ocr.pipeline.page import FixedPart
from ocr.pipeline.source import Source
from ocr.system import usable_cores

CACHE_COUNTS = ("cache_hits", "cache_misses", "cache_invalid")


class PageCache:
    """Batches as views of a cache, filling it ahead, and counting its hits and misses."""

    def __init__(self, cache: Cache, ledger: Ledger, holds_batches: bool) -> None:
        """`holds_batches`: what is stored of a sample is exactly what a batch contains."""
        self.cache = cache
        self._ledger, self._holds_batches = ledger, holds_batches
        self._settled: dict[str, int] = {}

    def can_view(self, indices: Sequence[int]) -> bool:
        """Whether a batch of these samples is a view as soon as the cache holds them."""
        return self._holds_batches and not self.cache.stopped and are_consecutive(indices)

    def peek(self, indices: Sequence[int]) -> CachedBatch | None:
        """A batch of neighbouring samples as views; None if they must be made or copied."""
        found = self.cache.view(indices) if self._holds_batches else None
        return None if found is None else (as_batch(*found), rows_of(found[1]))

    def read_ahead(self, samples: NDArray[np.signedinteger[Any]] | range) -> ReadAhead | None:
        """What announces the samples of a pass to the system; None if the cache fits into memory."""
        return read_ahead(self.cache.store, samples)

    def settle(self) -> None:
        """Add the hits and misses of this epoch so far to the statistics of `ocr cache stats`."""
        counts = self._ledger.totals(CACHE_COUNTS)
        new = {name: count - self._settled.get(name, 0) for name, count in counts.items()}
        if any(new.values()):
            self.cache.settle(**{name.removeprefix("cache_"): count for name, count in new.items()})
            self._settled = counts

    def start_epoch(self, changed: Sequence[int]) -> None:
        """Count from zero again, as the ledger does, and look at files again; `changed` have another annotation."""
        self._settled = {}
        self.cache.look(changed)

    def fill(self, keep: Callable[[int], str], title: str, threads: int | None = None) -> Counter[str]:
        """Call `keep` for every sample, in threads and with a progress bar; returns how often each outcome occurred."""
        outcomes: Counter[str] = Counter()
        total = len(self.cache.source)
        with closing(self.cache.fill(keep, threads or usable_cores())) as made:
            for outcome in track(made, title, total=total, transient=True, disable=not Console().is_terminal):
                outcomes[outcome or "skipped"] += 1
        return outcomes


def open_cache(
    source: Source,
    make: FixedPart,
    cut: Cut,
    folder: str | os.PathLike[str] | None,
    max_bytes: int | str,
    form_reason: str = "",
    max_total_bytes: int | str = "auto",
) -> Cache:
    """The cache of what `make` returns for the pages of a source; `form_reason` says why it has its form."""
    cache = Cache(source, make.parts, make, cut, folder, max_bytes, form_reason, max_total_bytes)
    cache.start()
    return cache
