"""A file as memory: one read-only map for all who read."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray


def map_file(descriptor: int) -> NDArray[np.uint8]:
    """The whole file, read-only, for as long as any view of it lives."""
    return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), dtype=np.uint8)
