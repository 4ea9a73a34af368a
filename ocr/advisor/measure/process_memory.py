"""Memory of this process and its workers; what they share is counted once."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from ocr.system import memory_bytes

LOOK_SECONDS = 0.2
"""Measuring a process with 1 GB takes about 5 ms of a core."""


def release_memory() -> None:
    """Return freed memory to the system, so that only new memory counts as growth."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_growth(call: Callable[[], object]) -> int:
    """Bytes that a call needs at its peak beyond those in use before it, freed memory not counted."""
    release_memory()
    before = _status_bytes("VmRSS")
    if before is None or not _reset_peak():
        with MemoryWatch() as watch:
            call()
            watch.look()
        return watch.growth_bytes
    call()
    return max(0, (_status_bytes("VmHWM") or 0) - before)


def _reset_peak() -> bool:
    """Let Linux count the peak of this process from now on; false if it cannot."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
        return True
    return False


def _status_bytes(name: str) -> int | None:
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
    return None


class MemoryWatch:
    """The memory of a block, and its peak beyond what was in use before, sampled by a thread."""

    def __init__(self) -> None:
        self.growth_bytes = 0
        self.looks: list[tuple[float, int]] = []
        """When, by `time.perf_counter`, and how many bytes."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def look(self) -> None:
        """Sample once, now."""
        size = memory_bytes()
        self.looks.append((time.perf_counter(), size))
        self.growth_bytes = max(self.growth_bytes, size - self._before)

    def __enter__(self) -> Self:
        release_memory()
        self._before = memory_bytes()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the thread."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()
