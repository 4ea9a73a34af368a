"""Shards as memory: fetched if they are remote, mapped when they are used, unmapped when too many are."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import DataError
from ocr.mapped_file import map_file, private_window
from ocr.pipeline.signature import Signature
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
        self.signatures: dict[int, Signature] = {}
        """Of each local shard that was mapped, the file that it was."""
        self._reset()

    def _reset(self) -> None:
        self._mapped: dict[int, _Mapped] = {}
        self._locks = [threading.Lock() for _ in self.urls]
        self._mapping = threading.Lock()
        self._prefetcher: Prefetcher | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("urls", "shards", "storage", "signatures")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()

    def read(self, number: int) -> NDArray[np.uint8]:
        """All of a shard, read-only."""
        return self._get(number).data

    def window(self, number: int, start: int, size: int) -> NDArray[np.uint8] | None:
        """Private memory with some bytes of a shard; writing to it does not change the file. None if not possible."""
        mapped = self._get(number)
        try:
            with mapped.path.open("rb") as stream:
                if not os.path.samestat(os.fstat(stream.fileno()), mapped.stat):
                    return None  # Replaced since: the map still has what was proven.
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

    def _get(self, number: int) -> _Mapped:
        if self._prefetcher is not None:
            self._prefetcher.reach(number)
        found = self._mapped.get(number)
        if found is None:
            with self._locks[number]:
                found = self._mapped.get(number) or self._map(number)
        return found

    def _map(self, number: int) -> _Mapped:
        known = self.shards[number]
        path, stream = self.storage.open(self.urls[number], known.bytes or None, known.sha256 or None)
        with stream:
            stat = os.fstat(stream.fileno())
            self._refuse_other_file(number, path, stat)
            # Python's own mmap keeps a file descriptor open, and a process has about a thousand.
            data = private_window(stream.fileno(), 0, stat.st_size) if stat.st_size else np.empty(0, np.uint8)
            data = map_file(stream.fileno()) if data is None else data
        data.flags.writeable = False
        mapped = _Mapped(path, stat, data)
        with self._mapping:
            kept = dict(list(self._mapped.items())[1 - MAX_MAPPED :])
            if is_remote(self.urls[number]):
                # A file that was removed to make room takes disk space as long as it is mapped.
                kept = {other: one for other, one in kept.items() if one.path.exists()}
            self._mapped = kept | {number: mapped}
        return mapped

    def _refuse_other_file(self, number: int, path: Path, stat: os.stat_result) -> None:
        """Raise if a local shard is not the file that was first mapped: its members may be at other offsets."""
        if is_remote(self.urls[number]):
            return
        found = Signature.of(stat)
        if self.signatures.setdefault(number, found) != found:
            raise DataError(
                f"{path}: changed while it was read. Its new content is read from the start of the next epoch on",
                path=path,
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Mapped:
    """A shard in memory, and the file that it was when it was mapped."""

    path: Path
    stat: os.stat_result
    data: NDArray[np.uint8]


def _fetch(urls: Sequence[str], shards: Sequence[Shard], storage: Storage, number: int) -> None:
    known = shards[number]
    storage.fetch(urls[number], known.bytes or None, known.sha256 or None)
