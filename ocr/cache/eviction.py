"""Make room among the caches of a folder: those of older code go first, then the least recently used."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ocr.cache.folder import disk_bytes, last_used, list_stores
from ocr.cache.lock import CacheLock, remove_stale_locks
from ocr.cache.store_folder import DamagedStoreError, read_about, remove_store
from ocr.units import format_bytes

log = logging.getLogger(__name__)


def make_room(own: Path, own_bytes: int, limit: int, setting: str) -> int:
    """Remove other caches until they and `own_bytes` fit the limit; returns the bytes that are free again."""
    folders = [folder for folder in list_stores(own.parent) if folder != own]
    sizes = {folder: disk_bytes(folder) for folder in folders}
    excess, freed, removed = sum(sizes.values()) + own_bytes - limit, 0, 0
    if excess <= 0:
        return 0
    for folder in removal_order(folders, own):
        if freed < excess and sizes[folder] and remove_unused(folder):
            freed += sizes[folder]
            removed += 1
    remove_stale_locks(own.parent)
    if removed:
        log.warning(
            "removed other caches to make room for %s: %d, %s (%s)",
            own,
            removed,
            format_bytes(freed),
            setting,
        )
    return freed


def removal_order(folders: Sequence[Path], own: Path | None = None) -> list[Path]:
    """These caches in the order in which they are removed to make room for `own`."""
    old = superseded([*([own] if own else []), *folders])
    return sorted(folders, key=lambda folder: (folder not in old, last_used(folder)))


def superseded(folders: Sequence[Path]) -> set[Path]:
    """Caches of the same dataset and stages as a more recently used one: they were made by older code or libraries.

    `folders` are given most recently used first.
    """
    newest: set[tuple[Any, ...]] = set()
    old = set()
    for folder in folders:
        try:
            about, layout = read_about(folder)
        except (DamagedStoreError, OSError):
            continue
        made = (layout.count, *(repr(about.get(key)) for key in ("dataset", "keeps", "stages")))
        if made in newest:
            old.add(folder)
        newest.add(made)
    return old


def remove_unused(folder: Path) -> bool:
    """Remove a cache that no process has open; false if one has, or it is of another user."""
    try:
        with CacheLock(folder.parent, folder.name.rsplit("-", 1)[0], seconds=0.0):
            if is_open(folder):
                return False
            remove_store(folder)
            return True
    except OSError:  # TimeoutError too: a process is opening it.
        return False


def is_open(folder: Path) -> bool:
    """Whether a process has a cache open: who has, holds a shared lock on its data."""
    try:
        descriptor = os.open(folder / "data", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
