"""The folder of all caches: where it is, which caches are in it, and which of them belongs to a dataset."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from ocr.cache.store import Store
from ocr.cache.store_folder import DamagedStoreError, remove_store, unlink_files
from ocr.system import has_ended

log = logging.getLogger(__name__)
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}-[0-9]+")


def cache_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """`folder`, or else $GLYPHFEED_CACHE, or else glyphfeed in the user's folder for caches."""
    given = folder or os.environ.get("GLYPHFEED_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glyphfeed"


def find_store(root: Path, name: str, pages: int, is_ours: Callable[[Store], bool]) -> tuple[Store | None, Path]:
    """The cache of this name that holds our pages, and where it is or should be; call it under its `CacheLock`.

    Datasets whose files have the same names get numbers. A damaged cache is removed.
    """
    remove_partial_stores(root)
    for number in count():
        folder = root / f"{name}-{number}"
        try:
            store = Store(folder)
            if store.layout.count != pages:
                raise DamagedStoreError(f"{folder}: it is for {store.layout.count} pages, not {pages}")
        except DamagedStoreError as error:
            if folder.exists():
                log.warning("%s; the cache is rebuilt", str(error))
                remove_store(folder)
            return None, folder
        if is_ours(store):
            touch(folder)
            return store, folder
    raise AssertionError


def list_stores(root: Path) -> list[Path]:
    """The folders of all caches, damaged ones included, most recently used first; other files are left out."""
    found = [path for path in root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()] if root.is_dir() else []
    return sorted(found, key=lambda folder: -last_used(folder))


def disk_bytes(folder: Path) -> int:
    """What a cache takes on disk, without its holes; 0 if it is being removed, or of another user."""
    with suppress(OSError):
        return sum(path.lstat().st_blocks * 512 for path in folder.iterdir())
    return 0


def last_used(folder: Path) -> float:
    """When a run last opened a cache, in seconds since 1970."""
    try:
        return (folder / "about.json").stat().st_mtime
    except OSError:
        return 0.0


def touch(folder: Path) -> None:
    """Note the use of a cache, unless it is read-only."""
    with suppress(OSError):
        os.utime(folder / "about.json")


def remove_partial_stores(root: Path) -> int:
    """Remove what killed processes left half created or half removed; returns the bytes that are free again."""
    freed = 0
    for folder in root.glob(".*.partial"):
        process = folder.name.split(".")[-2].split("-")[0]
        if has_ended(process):
            freed += disk_bytes(folder)
            with suppress(OSError):  # It may belong to another user.
                unlink_files(folder)
    return freed
