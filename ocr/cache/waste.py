"""Space of samples that were replaced: it cannot be used again, because a batch may still be a view of it."""

from __future__ import annotations

import numpy as np

from ocr.cache.row_format import ROW_BYTES, align
from ocr.cache.store import CACHE_LINE_BYTES, Store

ROWS_AT_ONCE = 1 << 16
TOO_MUCH = "samples of pages that were edited since take more of it than all others"
NUMBERS = ("height", "width", "page", "metadata")
_SIZES = np.dtype(
    {
        "names": ["format", *NUMBERS, "offset"],
        "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<i8"],
        "offsets": [0, 4, 8, 12, 16, 20],
        "itemsize": ROW_BYTES,
    }
)
"""The beginning of a row."""


def is_wasteful(store: Store) -> bool:
    """Whether replaced samples take more than those in use: at most one page for each edit is then made again."""
    behind_slots = store.data_bytes - store.layout.end()
    if behind_slots <= 0:
        return False
    in_use, in_use_behind = _bytes_in_use(store)
    return behind_slots - in_use_behind > in_use


def _bytes_in_use(store: Store) -> tuple[int, int]:
    """Of all samples, and of those that are not in slots, with the gaps between them."""
    per_pixel = sum(array.nbytes for array in store.layout.arrays(1, 1).values())
    unit = align(1) if store.layout.has_slots else CACHE_LINE_BYTES
    everywhere = behind = 0
    for first in range(0, store.layout.count, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, store.layout.count - first)
        rows = np.frombuffer(b"".join(store.rows_bytes(first, count)).ljust(count * ROW_BYTES, b"\0"), _SIZES)
        rows = rows[rows["format"] != 0]
        height, width, page, metadata = (rows[name].astype(np.int64) for name in NUMBERS)
        sizes = -(-(height * width * per_pixel + page + metadata) // unit) * unit
        everywhere += int(sizes.sum())
        behind += int(sizes[rows["offset"] >= 0].sum())
    return everywhere, behind
