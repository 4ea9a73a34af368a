"""The sizes of pages before any is decoded, from the headers of their files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import numpy as np

from ocr.errors import DataError
from ocr.pipeline.source import Source
from ocr.pipeline.stage import Sizes
from ocr.system import usable_cores

AT_ONCE = 4096
UNREADABLE = (0, 0)
"""Of a page that cannot be read: whoever decodes it reports it."""


def page_sizes(source: Source, max_pixels: int) -> Sizes:
    """(N, 2): width and height of every page, upright."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        # A pool queues all that it is given at once.
        pieces = (range(len(source))[start : start + AT_ONCE] for start in range(0, len(source), AT_ONCE))
        size = partial(_page_size, source, max_pixels)
        found = chain.from_iterable(pool.map(size, some) for some in pieces)
        sizes: Sizes = np.fromiter(found, np.dtype((np.int64, 2)), len(source))
    bad = np.flatnonzero(sizes[:, 0] == 0)
    # Unreadable pages are spread over the batches of others: a batch of nothing else would be none.
    sizes[bad] = np.resize(np.delete(sizes, bad, axis=0), (len(bad), 2)) if len(bad) < len(sizes) else 1
    return sizes


def _page_size(source: Source, max_pixels: int, index: int) -> tuple[int, int]:
    try:
        return source.size(index, max_pixels)
    except DataError:
        return UNREADABLE
