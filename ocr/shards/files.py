"""Shards as memory: fetched where they are remote, mapped when they are used, let go again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.mapped_file import map_file, private_window
from ocr.shards.fetch_ahead import FetchAhead
from ocr.shards.index import Shard
from ocr.shards.storage import Storage, is_remote

MOST_MAPPED = 256
"""Shards that are mapped at a time."""


class ShardFiles:
    """The bytes of shards, by number."""

    def __init__(self, urls: Sequence[str], shards: Sequence[Shard], storage: Storage) -> None:
        self.urls, self.shards, self.storage = urls, shards, storage
        self._forget()

    def _forget(self) -> None:
        self._mapped: dict[int, tuple[Path, NDArray[np.uint8]]] = {}
        self._locks = [threading.Lock() for _ in self.urls]
        self._mapping = threading.Lock()
        self._ahead: FetchAhead | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("urls", "shards", "storage")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def read(self, number: int) -> NDArray[np.uint8]:
        """All of a shard, read-only."""
        if self._ahead is not None:
            self._ahead.reach(number)
        found = self._mapped.get(number)
        if found is None:
            with self._locks[number]:
                found = self._mapped.get(number) or self._map(number)
        return found[1]

    def window(self, number: int, start: int, size: int) -> NDArray[np.uint8] | None:
        """Some bytes of a shard that may be written without reaching it; None where there is no such window."""
        self.read(number)
        found = self._mapped.get(number)
        try:
            with found[0].open("rb") as stream:  # type: ignore[index]
                return private_window(stream.fileno(), start, size)
        except (OSError, TypeError):
            return None  # Let go in the meantime, or removed to make room.

    def expect(self, numbers: Iterable[int], ahead: int) -> None:
        """These shards will be used, in this order: fetch the remote ones before they are."""
        if self._ahead is not None:
            self._ahead.stop()
        remote = [number for number in dict.fromkeys(numbers) if is_remote(self.urls[number])]
        self._ahead = None
        if remote and ahead:
            # The thread knows where the shards are, and not who reads them, who can so be let go.
            self._ahead = FetchAhead(remote, _Fetch(self.urls, self.shards, self.storage), ahead)
            weakref.finalize(self, self._ahead.stop).atexit = False

    def _map(self, number: int) -> tuple[Path, NDArray[np.uint8]]:
        path = _Fetch(self.urls, self.shards, self.storage)(number)
        with path.open("rb") as stream:
            size = path.stat().st_size
            # Python's own map keeps a file descriptor, of which there are a thousand.
            data = private_window(stream.fileno(), 0, size) if size else np.empty(0, np.uint8)
            data = map_file(stream.fileno()) if data is None else data
        data.flags.writeable = False
        with self._mapping:
            kept = dict(list(self._mapped.items())[1 - MOST_MAPPED :])
            if is_remote(self.urls[number]):
                # What was removed to make room takes room for as long as it is mapped.
                kept = {other: pair for other, pair in kept.items() if pair[0].exists()}
            self._mapped = kept | {number: (path, data)}
        return path, data


class _Fetch:
    """A shard as a local file."""

    def __init__(self, urls: Sequence[str], shards: Sequence[Shard], storage: Storage) -> None:
        self.urls, self.shards, self.storage = urls, shards, storage

    def __call__(self, number: int) -> Path:
        known = self.shards[number]
        return self.storage.local(self.urls[number], known.bytes or None, known.sha256 or None)
