"""How fast this machine copies memory, and reads files of a dataset that are not in memory yet."""

from __future__ import annotations

import os
import time

import numpy as np

from ocr.datasets.page_dataset import PageDataset

COPIED_BYTES = 64 << 20
MAX_FILES = 64


def measure_throughput(dataset: PageDataset) -> dict[str, float]:
    """Bytes per second of the disk and of memory."""
    source = np.ones(COPIED_BYTES, dtype=np.uint8)
    target = np.ones_like(source)
    copies = []
    for _ in range(3):
        begin = time.perf_counter()
        np.copyto(target, source)
        copies.append(time.perf_counter() - begin)
    return {"copy_bytes_per_s": COPIED_BYTES / min(copies), "disk_bytes_per_s": _disk_bytes_per_s(dataset)}


def _disk_bytes_per_s(dataset: PageDataset) -> float:
    """Of some files, dropped from the page cache before they are read; 0 if pages are not files."""
    total, seconds = 0, 0.0
    source = dataset.source
    for index in range(min(MAX_FILES, len(source))):
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
