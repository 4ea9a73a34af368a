"""A lock on the folder of all caches, between threads and between processes."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path


class FolderLock:
    """Held by one thread of one process at a time, and reentrant; it ends with its process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread_lock = threading.RLock()
        self._depth = 0
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        self._thread_lock.acquire()
        self._depth += 1
        if self._depth == 1:
            # If the folder cannot be made, nothing can be written either, and the attempt to write reports it.
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._folder, os.O_RDONLY)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._descriptor is not None:
            # Closing is not enough: a process that was forked meanwhile holds the descriptor too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None
        self._thread_lock.release()
