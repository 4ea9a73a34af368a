"""Before the first epoch: what a cache keeps, why in this form, and how many of the pages fit."""

from __future__ import annotations

import numpy as np

from ocr.cache.cache import Cache
from ocr.errors import DataError
from ocr.pipeline.record import to_record
from ocr.units import format_bytes

PROBES = 8
"""Pages that are made to learn their size; dense ones differ."""


def forecast(cache: Cache) -> str:
    """One sentence, from what is stored or from a few pages that are made for it."""
    pages, store = len(cache.source), cache.store()
    told = f"the cache keeps of a page: {cache.cut} ({cache.form_reason})"
    used = store.used_bytes if store is not None else 0
    if cache.covered == 1:
        return f"{told}; all {pages} are in it, {format_bytes(used)}"
    size = bytes_per_page(cache)
    if size is None or cache.stopped:
        return told
    limit, setting = cache.handle.expected_limit(used)
    share = min(1.0, limit / (size * pages))
    full = "" if share == 1 else f" into {format_bytes(limit)} ({setting})"
    return f"{told}; {format_bytes(size)} each, so {share:.0%} of {pages} fit{full}"


def bytes_per_page(cache: Cache) -> float | None:
    """Mean size of a few samples at the cut, spread over the dataset; None if none of them can be read."""
    probes = np.unique(np.linspace(0, len(cache.source) - 1, PROBES if cache.cut.dense else 1, dtype=np.int64))
    sizes = []
    for index in probes.tolist():
        try:
            record = to_record(cache.make(cache.source.read(index)), cache.cut)
        except DataError:
            continue  # Reading the page reports it.
        sizes.append(sum(part.nbytes for part in record.parts()))
    return float(np.mean(sizes)) if sizes else None
