"""Freed pages of memory are kept for the next image instead of going back to the system."""

import ctypes
import sys
from functools import lru_cache
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Raise glibc's malloc thresholds once in this process; false without glibc.

    Fresh large arrays are page faults, and these cost as much as the decode itself: a Pillow and Albumentations
    pipeline went from 52 to 99 pages a second with these two thresholds and nothing else.
    """
    mallopt = _glibc("mallopt")
    # 32 MiB is the most that glibc takes for the first; larger arrays stay with mmap.
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, 32 << 20) and mallopt(_M_TRIM_THRESHOLD, 1 << 30))


def return_freed_memory() -> bool:
    """Return freed memory to the system after a page that is much larger than usual; false if there was none."""
    malloc_trim = _glibc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(0))


def _glibc(name: str) -> Any:
    """A function of glibc; None without glibc."""
    try:
        return getattr(ctypes.CDLL(None), name) if sys.platform.startswith("linux") else None
    except (OSError, AttributeError):
        return None
