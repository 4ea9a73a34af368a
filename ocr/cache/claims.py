"""Locks on the rows of one store: two workers do not make the same sample, nor allocate the same space."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ocr.cache.lock import lock_within
from ocr.cache.row_format import ROW_BYTES

CLAIM_SECONDS = 60.0


class Claims:
    """Locks on the file of rows, between threads and between processes; they end with their process."""

    def __init__(self, rows: int, writable: bool) -> None:
        """`rows` is the descriptor of the open file; a file that is not writable is not locked."""
        self._rows, self._writable = rows, writable
        self._change = threading.Condition()
        self._claimed: set[int] = set()

    @contextmanager
    def claim(self, index: int) -> Iterator[None]:
        """Be the only one to make a sample; claims older than 60 s are ignored."""
        deadline = time.monotonic() + CLAIM_SECONDS
        # The system's locks exclude other processes only; other threads of this one need the set.
        with self._change:
            while index in self._claimed and time.monotonic() < deadline:
                self._change.wait(1.0)
            self._claimed.add(index)
        try:
            while not self._lock_row(index) and time.monotonic() < deadline:
                time.sleep(0.002)
            yield
        finally:
            with self._change:
                if self._writable:
                    fcntl.lockf(self._rows, fcntl.LOCK_UN, 1, (index + 1) * ROW_BYTES)
                self._claimed.discard(index)
                self._change.notify_all()

    @contextmanager
    def whole_file(self) -> Iterator[None]:
        """Be the only one to change what all rows share: the counts, and the length of the data.

        TimeoutError if another process does not release it.
        """
        # flock, not lockf as above: lockf does not exclude another store of the same process.
        with self._change:
            if self._writable:
                lock_within(self._rows, fcntl.LOCK_EX, CLAIM_SECONDS, _rows_are_held)
            try:
                yield
            finally:
                if self._writable:
                    fcntl.flock(self._rows, fcntl.LOCK_UN)

    def _lock_row(self, index: int) -> bool:
        if not self._writable:
            return True
        try:
            fcntl.lockf(self._rows, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, (index + 1) * ROW_BYTES)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            pass  # A file system without locks: two may make the same sample, and both make it right.
        return True


def _rows_are_held() -> str:
    return "another process has held the lock on its rows for too long. End that process if it is stuck"
