"""Memory of this process and its workers; what they share is counted once."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

LOOK_SECONDS = 0.2
"""Measuring a process with 1 GB takes about 5 ms of a core."""


def memory_bytes() -> int:
    """Proportional set size of this process and its descendants; its peak so far if the system does not report that."""
    sizes = [_pss_bytes(process) for process in _processes(os.getpid())]
    if sizes[0] is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return sum(size for size in sizes if size is not None)


def _pss_bytes(process: int) -> int | None:
    with suppress(OSError, StopIteration), open(f"/proc/{process}/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return None


def _processes(process: int) -> list[int]:
    """A process and its descendants."""
    found, threads = [process], f"/proc/{process}/task"
    with suppress(OSError):
        for thread in os.listdir(threads):
            with suppress(OSError), open(f"{threads}/{thread}/children", encoding="ascii") as children:
                found += [one for child in children.read().split() for one in _processes(int(child))]
    return found


def release_memory() -> None:
    """Return freed memory to the system, so that only new memory counts as growth."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryWatch:
    """The peak memory of a block beyond what was in use before it, sampled by a thread."""

    def __init__(self) -> None:
        self.growth_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def look(self) -> None:
        """Sample once, now."""
        self.growth_bytes = max(self.growth_bytes, memory_bytes() - self._before)

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
