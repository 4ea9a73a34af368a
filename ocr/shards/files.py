"""Shards as memory: fetched if they are remote, mapped when they are used, unmapped when too many are."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.mapped_file import map_file, private_window
from ocr.shards.index import Shard
from ocr.shards.locations import is_remote
from ocr.shards.prefetch import Prefetcher
from ocr.shards.storage import Storage

MAX_MAPPED = 256
"""Shards that are mapped at the same time."""


class ShardFiles:
    """The bytes of shards, by number."""

    def __init__(self, urls: Sequence[str], shards: Sequence[Shard], storage: Storage) -> None:
        self.urls, self.shards, self.storage = urls, shards, storage
        self._reset()

    def _reset(self) -> None:
        self._mapped: dict[int, tuple[Path, NDArray[np.uint8]]] = {}
        self._locks = [threading.Lock() for _ in self.urls]
        self._mapping = threading.Lock()
        self._prefetcher: Prefetcher | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("urls", "shards", "storage")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()

    def read(self, number: int) -> NDArray[np.uint8]:
        """All of a shard, read-only."""
        return self._get(number)[1]

    def window(self, number: int, start: int, size: int) -> NDArray[np.uint8] | None:
        """Private memory with some bytes of a shard; writing to it does not change the file. None if not possible."""
        path, _ = self._get(number)
        try:
            with path.open("rb") as stream:
                return private_window(stream.fileno(), start, size)
        except OSError:
            return None  # Removed since, to make room.

    def prefetch(self, numbers: Iterable[int], ahead: int) -> None:
        """These shards will be used, in this order: fetch the remote ones before they are needed."""
        if self._prefetcher is not None:
            self._prefetcher.stop()
        remote = [number for number in dict.fromkeys(numbers) if is_remote(self.urls[number])]
        self._prefetcher = None
        if remote and ahead:
            # The thread holds no reference to this object, so that it ends with it.
            fetch = partial(_fetch, self.urls, self.shards, self.storage)
            self._prefetcher = Prefetcher(remote, fetch, ahead)
            weakref.finalize(self, self._prefetcher.stop).atexit = False

    def _get(self, number: int) -> tuple[Path, NDArray[np.uint8]]:
        if self._prefetcher is not None:
            self._prefetcher.reach(number)
        found = self._mapped.get(number)
        if found is None:
            with self._locks[number]:
                found = self._mapped.get(number) or self._map(number)
        return found

    def _map(self, number: int) -> tuple[Path, NDArray[np.uint8]]:
        path = _fetch(self.urls, self.shards, self.storage, number)
        with path.open("rb") as stream:
            size = path.stat().st_size
            # Python's own mmap keeps a file descriptor open, and a process has about a thousand.
            data = private_window(stream.fileno(), 0, size) if size else np.empty(0, np.uint8)
            data = map_file(stream.fileno()) if data is None else data
        data.flags.writeable = False
        with self._mapping:
            kept = dict(list(self._mapped.items())[1 - MAX_MAPPED :])
            if is_remote(self.urls[number]):
                # A file that was removed to make room takes disk space as long as it is mapped.
                kept = {other: pair for other, pair in kept.items() if pair[0].exists()}
            self._mapped = kept | {number: (path, data)}
        return path, data


def _fetch(urls: Sequence[str], shards: Sequence[Shard], storage: Storage, number: int) -> Path:
    """A shard as a local file."""
    known = shards[number]
    return storage.local(urls[number], known.bytes or None, known.sha256 or None)
