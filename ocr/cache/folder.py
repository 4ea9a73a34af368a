"""The folder of all caches: where it is, how large they may get, and which of them belongs to a dataset."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from ocr.cache.store import DamagedStoreError, Store, remove_store, unlink_files
from ocr.system import free_memory, has_ended
from ocr.units import parse_bytes

log = logging.getLogger(__name__)
AUTO_SHARE = 0.4
"""Of free memory and of the free disk, for each dataset: training and validation together leave a fifth."""
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}-[0-9]+")


def cache_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """`folder`, or else $GLYPHFEED_CACHE, or else glyphfeed in the user's folder for caches."""
    given = folder or os.environ.get("GLYPHFEED_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glyphfeed"


class Budget:
    """How many bytes the cache of one dataset may take."""

    def __init__(self, max_bytes: int | str = "auto") -> None:
        self.max_bytes = None if max_bytes == "auto" else parse_bytes(max_bytes)
        self._limit: int | None = None

    def __str__(self) -> str:
        if self.max_bytes is None:
            return f"cache.max_bytes=auto, {AUTO_SHARE:.0%} of what memory and disk had free"
        return f"cache.max_bytes={self.max_bytes}"

    def limit(self, root: Path, used: int) -> int:
        """The limit of this run, from what is free when it is first asked for; `used` is the cache's own."""
        if self._limit is None:
            free_disk = shutil.disk_usage(root).free + used
            self._limit = self.max_bytes
            if self._limit is None:
                self._limit = int(AUTO_SHARE * min(free_memory(), free_disk))
        return self._limit


def find_store(root: Path, name: str, is_ours: Callable[[Store], bool]) -> tuple[Store | None, Path]:
    """The cache of this name whose pages are ours, and where it is or should be; to be called under a `FolderLock`.

    Datasets whose files have the same names get numbers. A damaged cache is removed.
    """
    remove_remains(root)
    for number in count():
        folder = root / f"{name}-{number}"
        try:
            store = Store(folder)
        except DamagedStoreError as error:
            if folder.exists():
                log.warning("%s; the cache is made anew", str(error))
                remove_store(folder)
            return None, folder
        if is_ours(store):
            touch(folder)
            return store, folder
    raise AssertionError


def list_stores(root: Path) -> list[Path]:
    """The folders of all caches, damaged ones included, the one used last first; nothing else that lies there."""
    found = [path for path in root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()] if root.is_dir() else []
    return sorted(found, key=lambda folder: -last_used(folder))


def disk_bytes(folder: Path) -> int:
    """What a cache takes on disk, without its holes; 0 where it is removed just now."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sum(path.stat().st_blocks * 512 for path in folder.iterdir())
    return 0


def last_used(folder: Path) -> float:
    """When a run last opened a cache, in seconds since 1970."""
    try:
        return (folder / "about.json").stat().st_mtime
    except OSError:
        return 0.0


def touch(folder: Path) -> None:
    """Note the use of a cache, where that is allowed."""
    try:
        os.utime(folder / "about.json")
    except OSError:
        return


def remove_remains(root: Path) -> int:
    """Remove what killed processes left half made or half removed; the bytes that it took."""
    freed = 0
    for folder in root.glob(".*.partial"):
        process = folder.name.split(".")[-2].split("-")[0]
        if has_ended(process):
            freed += disk_bytes(folder)
            with suppress(OSError):  # Of somebody else.
                unlink_files(folder)
    return freed


class FolderLock:
    """One thread of one process at a time, again within itself; the lock is on the folder and ends with the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine = threading.RLock()
        self._depth = 0
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        self._mine.acquire()
        self._depth += 1
        if self._depth == 1:
            # Where the folder cannot be made nothing can be written either, which is told when it is tried.
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._folder, os.O_RDONLY)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._descriptor is not None:
            # Not only closed: a process that was forked meanwhile has it too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None
        self._mine.release()
