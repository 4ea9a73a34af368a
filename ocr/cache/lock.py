"""The lock of one cache, between threads and between processes; who has to wait too long is told who holds it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)
LOCK_SECONDS = 60.0
"""It is held while a cache is opened, or while its first page is made: seconds, even for the largest page."""
PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.005


class CacheLock:
    """Held by one thread of one process at a time, and reentrant; it ends with its process.

    The lock is a `flock` on a hidden file beside the cache, in which its holder writes who it is. The holder removes
    the file when it releases the lock: what a killed process leaves is locked by nobody.
    """

    def __init__(self, root: Path, name: str, seconds: float | None = None) -> None:
        """`name` is that of the cache without its number; `seconds` are waited for it, LOCK_SECONDS by default."""
        self.path = root / f".{name}.lock"
        self._seconds = seconds
        self._thread_lock = threading.RLock()
        self._depth = 0
        self._descriptor: int | None = None
        self._gave_up = False

    def __enter__(self) -> None:
        """TimeoutError if another process holds it for too long."""
        self._thread_lock.acquire()
        try:
            if self._depth == 0:
                self._lock()
            self._depth += 1
        except BaseException:
            self._thread_lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._descriptor is not None:
            with suppress(OSError):
                self.path.unlink()
            # Closing is not enough: a process that was forked meanwhile holds the descriptor too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None
        self._thread_lock.release()

    def _lock(self) -> None:
        seconds = LOCK_SECONDS if self._seconds is None else self._seconds
        # Threads that queued behind one that gave up do not each wait as long again.
        deadline = time.monotonic() + (0.0 if self._gave_up else seconds)
        while True:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError:
                return  # Where no file can be made nothing can be written either, and the attempt to write reports it.
            try:
                lock_within(descriptor, fcntl.LOCK_EX, deadline - time.monotonic(), self._holder)
                if _is_at(self.path, descriptor):
                    _write_holder(descriptor)
                    self._descriptor, descriptor = descriptor, -1
                    return
            except TimeoutError:
                self._gave_up = True
                raise
            finally:
                if descriptor >= 0:
                    os.close(descriptor)

    def _holder(self) -> str:
        return f"{self.path}: {_read_holder(self.path)}"


def lock_within(descriptor: int, kind: int, seconds: float, holder: Callable[[], str]) -> None:
    """Lock a file with `flock`; TimeoutError after so many seconds, with what `holder` returns about who holds it.

    A file system without locks is not locked: two may make the same page, and both make it right.
    """
    begin = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError:
            return
        waited = time.monotonic() - begin
        if waited >= seconds:
            raise TimeoutError(holder())
        if waited >= PATIENCE_SECONDS and not told:
            told = True
            log.warning("waiting up to %.0f s for a cache: %s", seconds, holder())
        time.sleep(_POLL_SECONDS)


def remove_stale_locks(root: Path) -> None:
    """Remove the lock files that killed processes left."""
    for path in root.glob(".*.lock"):
        with suppress(TimeoutError), CacheLock(root, path.name[1 : -len(".lock")], seconds=0.0):
            pass


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one of this name: its last holder may have removed it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    return False


def _write_holder(descriptor: int) -> None:
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join(sys.orig_argv)[:500],
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    with suppress(OSError):  # A full disk: the lock holds without a name.
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(holder).encode())


def _read_holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes()[:4096])
        return (
            f"held since {holder['since']} by process {holder['pid']} on {holder['host']} ({holder['command']}). "
            "End that process if it is stuck"
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "held by a process that did not write who it is"
