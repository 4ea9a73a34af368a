"""How fast this machine copies memory and reads the files of a dataset that are not in memory yet."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

COPIED_BYTES = 64 << 20
MOST_FILES = 64


def measure_rates(dataset: Any) -> dict[str, float]:
    """Bytes a second of the disk and of memory."""
    source = np.ones(COPIED_BYTES, dtype=np.uint8)
    target = np.ones_like(source)
    copies = []
    for _ in range(3):
        begin = time.perf_counter()
        np.copyto(target, source)
        copies.append(time.perf_counter() - begin)
    return {"copy_bytes_per_s": COPIED_BYTES / min(copies), "disk_bytes_per_s": _disk_rate(dataset)}


def _disk_rate(dataset: Any) -> float:
    """Some files, dropped from memory before they are read; 0 where they are not files."""
    total, seconds = 0, 0.0
    source = dataset.source
    for index in range(min(MOST_FILES, len(source))):
        try:
            descriptor = os.open(source.entry(index).path, os.O_RDONLY)
        except OSError:
            continue
        try:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            begin = time.perf_counter()
            while data := os.read(descriptor, 1 << 22):
                total += len(data)
            seconds += time.perf_counter() - begin
        finally:
            os.close(descriptor)
    return total / seconds if seconds else 0.0
