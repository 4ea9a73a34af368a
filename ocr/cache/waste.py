"""Space of samples that were replaced: it cannot be used again, because a batch may still be a view of it."""

from __future__ import annotations

import numpy as np

from ocr.cache.row_format import METADATA_SLOT_BYTES, ROW_BYTES, align
from ocr.cache.store import CACHE_LINE_BYTES, Store

ROWS_AT_ONCE = 1 << 16
TOO_MUCH = "samples of edited pages take too much of it"
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


MAX_SHARE, MAX_SHARE_IF_FULL = 1.0, 0.25
"""Of what is in use: then one page for each edit is made again at most, or four where nothing more can be stored."""


def is_wasteful(store: Store, is_full: bool = False) -> bool:
    """Whether replaced samples take so much that the cache should be made anew."""
    behind_slots = store.data_bytes - store.layout.end()
    if behind_slots <= 0:
        return False
    in_use, not_wasted = _bytes_in_use(store)
    return behind_slots - not_wasted > (MAX_SHARE_IF_FULL if is_full else MAX_SHARE) * in_use


def _bytes_in_use(store: Store) -> tuple[int, int]:
    """Of all samples, and of those behind the slots for which there is no slot; with the gaps between them."""
    layout, everywhere, behind = store.layout, 0, 0
    per_pixel = sum(array.nbytes for array in layout.arrays(1, 1).values())
    unit = align(1) if layout.has_slots else CACHE_LINE_BYTES
    for first in range(0, layout.count, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, layout.count - first)
        rows = np.frombuffer(b"".join(store.rows_bytes(first, count)).ljust(count * ROW_BYTES, b"\0"), _SIZES)
        rows = rows[rows["format"] != 0]
        height, width, page, metadata = (rows[name].astype(np.int64) for name in NUMBERS)
        sizes = -(-(height * width * per_pixel + page + metadata) // unit) * unit
        # What would fit its slot is behind them because the slot holds what was replaced: one of both is wasted.
        has_slot = (height == layout.height) & (width == layout.width) & (metadata <= METADATA_SLOT_BYTES)
        everywhere += int(sizes.sum())
        behind += int(sizes[(rows["offset"] >= 0) & ~(has_slot & layout.has_slots)].sum())
    return everywhere, behind
