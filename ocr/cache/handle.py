"""The store of one dataset in one process: opened when it is needed, created with the first sample."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ocr.cache.budget import Budget, MemoryReserve
from ocr.cache.folder import find_store
from ocr.cache.lock import CacheLock
from ocr.cache.proof import holds_pages_of
from ocr.cache.row_format import Layout
from ocr.cache.siblings import Siblings
from ocr.cache.store import Store
from ocr.cache.store_folder import remove_store
from ocr.cache.waste import is_wasteful
from ocr.pipeline.record import Record
from ocr.pipeline.source import Origin
from ocr.units import format_bytes

log = logging.getLogger(__name__)

LOOK_BYTES = 256 << 20
"""After so many bytes the caches of other processes are counted again."""
MEMORY_LOOK_SECONDS = 1.0


class StoreHandle:
    """Opens, creates and discards a store; pickled or forked, it opens its own."""

    def __init__(self, root: Path, name: str, source: Origin, about: dict[str, Any], budget: Budget) -> None:
        """`name` is that of the folder in `root`, without its number; `about` describes the cache to people."""
        self.root, self._name, self._source, self._about, self._budget = root, name, source, about, budget
        self._reset()

    def _reset(self) -> None:
        self.store: Store | None = None
        """The store, if it is open."""
        self.stopped = ""
        """Why nothing more is stored; empty as long as samples are stored."""
        self._folder = self.root / f"{self._name}-0"
        self._siblings: Siblings | None = None
        self._lock, self._one_thread = CacheLock(self.root, self._name), threading.Lock()
        self._memory: MemoryReserve | None = None
        self._look_again_at, self._limit, self._setting = 0, 0, ""
        self._is_full, self._searched = False, (0, False)
        self._next_look_seconds = 0.0
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("root", "_name", "_source", "_about", "_budget")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()

    def open(self) -> Store | None:
        """The store; None if there is none yet, or it cannot be opened."""
        if self._process != os.getpid():
            self._reset()
        if self.store is None and not self.stopped:
            with self._alone() as alone:
                if alone and self.store is None:
                    self._find()
        if self.store is not None and self._reserve().applies and time.monotonic() >= self._next_look_seconds:
            self._next_look_seconds = time.monotonic() + MEMORY_LOOK_SECONDS
            self.give_way()
        return self.store

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the lock of this cache; false, with a warning that names the holder, if it cannot be had."""
        with ExitStack() as held:
            try:
                held.enter_context(self._lock)
                alone = True
            except TimeoutError as error:
                self.stop(f"is not used, because its lock is not free ({error}); pages are recomputed every time")
                alone = False
            yield alone

    def _find(self) -> None:
        try:
            is_ours = lambda store: holds_pages_of(store, self._source)  # noqa: E731
            self.store, self._folder = find_store(self.root, self._name, len(self._source), is_ours)
        except OSError as error:
            self.stop(f"cannot be opened ({error}); pages are recomputed every time")
        if self.store is not None and not self.store.writable:
            self.stop(f"is read-only and covers {self.covered:.0%}; other pages are recomputed every time")

    def create(self, record: Record) -> Store:
        """The store, created with the layout of its first sample if it does not exist."""
        store, layout = self.store, Layout.of(len(self._source), record)
        if store is not None and not store.layout.keeps_like(layout) and self.discard(store):
            log.warning("%s: the whole cache is rebuilt: about.json describes other arrays", store.folder)
        if self.store is None:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.store = Store.create(self._folder, layout, self._about | {"created": time.time()})
        return self.store

    @property
    def covered(self) -> float:
        """Share of the samples that are stored."""
        store = self.open()
        return len(store.ready()) / len(self._source) if store else 0.0

    def expected_limit(self, used: int) -> tuple[int, str]:
        """The limit in bytes that the budget would give now, and its setting."""
        # The folder of the caches may not exist yet.
        existing = next(folder for folder in (self.root, *self.root.absolute().parents) if folder.exists())
        return self._budget.expected(existing, used)

    def has_room_for(self, record: Record) -> bool:
        """Whether the budget and the memory allow one more sample; if not, nothing more is stored."""
        assert self.store is not None
        used, size = self.store.used_bytes, sum(array.nbytes for array in record.arrays.values())
        with self._one_thread:
            if used >= self._look_again_at:
                planned = self.store.layout.count * (size + 4096)  # As if all were like this one.
                self._limit, self._setting = self._budget.room(self.store.folder, used, planned)
                self._look_again_at = used + LOOK_BYTES
        if used + size > self._limit:
            self._is_full = not self.stopped
            reason = self._setting
            cure = f"Raise {reason.split('=')[0]} if there is room"
        elif reason := self._reserve().shortage(size):
            cure = "Choose a disk for it: cache.folder"
        else:
            return True
        self.stop(
            f"is full at {format_bytes(used)} ({reason}): it covers {self.covered:.0%} of the pages, and the "
            f"others are recomputed every epoch. {cure}"
        )
        return False

    def _reserve(self) -> MemoryReserve:
        if self._memory is None:
            self._memory = MemoryReserve(self.root)
        return self._memory

    def give_way(self) -> None:
        """Remove a cache that takes memory which programs need now; called about once per second."""
        store = self.store
        if store is not None and self._reserve().is_urgent():
            self.stop("was removed: it was in memory (tmpfs), which programs need; pages are recomputed every time")
            self.trust_no_sibling()
            self.discard(store)

    def stop(self, reason: str) -> None:
        """Store nothing more in this process, and warn once."""
        if not self.stopped:
            self.stopped = reason
            log.warning("%s: the cache %s", self.store.folder if self.store else self.root, reason)

    @contextmanager
    def turn(self, index: int) -> Iterator[None]:
        """Be the only one to make a sample; look again whether it is stored, since another may have had its turn."""
        with ExitStack() as turn:
            if self.store is None and not self.stopped:
                # The first sample determines the layout, so all others wait for it.
                alone = turn.enter_context(self._alone())
                if alone and self.open() is not None:
                    turn.close()
            # The claim is released with the store's descriptors, so the store stays open even if it is discarded.
            store = self.store
            if store is not None and not self.stopped:
                turn.enter_context(store.claim(index))
            yield

    def siblings(self, untrusted: int) -> Siblings:
        """Other caches of the same stages, of which the first `untrusted` samples are made again and compared."""
        if self._siblings is None:
            with self._one_thread:
                self._siblings = self._siblings or Siblings(self._folder, untrusted)
        return self._siblings

    def wasteful(self) -> Store | None:
        """The store, if replaced samples take too much of it; looked for whenever it has grown or became full."""
        store = self.store
        if store is None or (self.stopped and not self._is_full):
            return None
        searched = store.data_bytes, self._is_full
        if searched == self._searched or not is_wasteful(store, self._is_full):
            self._searched = searched
            return None
        if self._is_full:
            self.stopped, self._is_full = "", False
        return store

    def discard(self, store: Store) -> bool:
        """Remove a store that cannot be used; false if another thread did."""
        with self._alone() as alone:
            if self.store is not store:
                return False
            self.store = None
            try:
                if alone and store.is_in_place():
                    remove_store(store.folder)
            except OSError as error:
                self.stop(f"cannot be removed ({error}) and is not used; pages are recomputed every time")
        return True

    def trust_no_sibling(self) -> None:
        """Take no samples from other caches of the same stages."""
        self._siblings = Siblings()
