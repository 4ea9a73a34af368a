"""A file as memory: one read-only map for all who read, and private windows that may be written without reaching it."""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAP_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, reads_around: bool = True) -> NDArray[np.uint8]:
    """The whole file, read-only, for as long as any view of it lives.

    Without `reads_around`, a page that is not in memory is read by itself and not with its neighbours.
    """
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    if not reads_around and hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype=np.uint8)


def private_window(descriptor: int, start: int, length: int) -> NDArray[np.uint8] | None:
    """Bytes of a file as memory of its own; None where the system has no such window.

    Nothing is copied until somebody writes, and what is written stays in this window: a tensor cannot be read-only,
    so a training step that normalises its batch in place would crash on the map above. The window holds no file
    descriptor, of which Python's own `mmap` needs one each.
    """
    library = _c_library()
    if library is None:
        return None
    before = start % mmap.PAGESIZE
    address = library.mmap(
        None, length + before, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, descriptor, start - before
    )
    if address in (None, _MAP_FAILED):
        return None
    memory = (ctypes.c_ubyte * length).from_address(address + before)
    weakref.finalize(memory, library.munmap, address, length + before).atexit = False
    return np.frombuffer(memoryview(memory), dtype=np.uint8)


@lru_cache(maxsize=1)
def _c_library() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    size, address, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    library.mmap.argtypes, library.mmap.restype = [address, size, number, number, number, ctypes.c_int64], address
    library.munmap.argtypes, library.munmap.restype = [address, size], number
    return library
