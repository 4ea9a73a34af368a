"""cache: what the fixed stages made of a page, one copy a machine, kept between runs, never stale.

A hit is proven: the file is the one it was made of (its signature, or else its content), the annotation is the same,
the stages have the same parameters, code and libraries, and the bytes have their checksum.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

import torch
from numpy.typing import NDArray

from ocr.cache.folder import Budget, FolderLock, cache_root, find_store
from ocr.cache.row_format import FORMAT, Layout, Row
from ocr.cache.siblings import Relatives, holds_pages_of
from ocr.cache.store import DamagedStoreError, Store, remove_store
from ocr.errors import DataError
from ocr.pipeline import metadata
from ocr.pipeline.batch import are_consecutive
from ocr.pipeline.cut import Cut
from ocr.pipeline.fingerprint import content_digest, digest, stages_digest
from ocr.pipeline.record import Record, to_record, to_sample
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import UNKNOWN, Signature, Source

log = logging.getLogger(__name__)
MAX_REMEMBERED = 4096
"""Samples whose metadata a process remembers, about 10 kB each: reading them is most of the time of a cached batch."""
RECOMPUTED_AT_START = 3
PROVE_AHEAD_SECONDS = 2.0
"""At 30 GB/s of checksums this is a few thousand pages of validation; the others are proven when first asked for."""


class Cache:
    """The samples of one dataset at its cut."""

    def __init__(
        self,
        source: Source,
        stages: Sequence[object],
        make: Callable[[Sample], Sample],
        cut: Cut,
        folder: str | os.PathLike[str] | None = None,
        max_bytes: int | str = "auto",
    ) -> None:
        self.source, self.make, self.cut = source, make, cut
        self.stages = " -> ".join(map(repr, stages))
        self.root = cache_root(folder)
        self.budget = Budget(max_bytes)
        fingerprint = digest(f"format {FORMAT}: {cut}", stages_digest(tuple(stages)))
        names = digest(*source.names)
        self._name = f"{fingerprint[:16]}-{names[:8]}"
        # Of each sample the checksum that was proven, and whether it was written in this run. In shared memory, so
        # that no worker process does either again.
        self._shared = torch.zeros((2, len(source)), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._forget()

    def _forget(self) -> None:
        self._proven, self._written = self._shared.numpy()
        self._store: Store | None = None
        self._candidate = self.root / f"{self._name}-0"
        self.stopped = ""
        """Why nothing more is kept."""
        self._remembered: dict[int, tuple[bytes, Sample]] = {}
        self._relatives: Relatives | None = None
        self._process = os.getpid()
        self._lock = FolderLock(self.root)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("source", "make", "cut", "stages", "root", "budget", "_name", "_shared")
        return {name: vars(self)[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def sample(self, index: int) -> Sample:
        """A sample at the cut, made and kept if it is not there; `cached` tells how it came about."""
        found = self._fetch(index)
        if isinstance(found, str):
            with self._turn(index):
                found = self._fetch(index)
                return found if isinstance(found, Sample) else self._make(index, found)
        return found

    def view(self, indices: Sequence[int]) -> tuple[dict[str, NDArray[Any]], list[Sample]] | None:
        """Neighbouring samples as one array a column, nothing copied; None where they do not lie so."""
        first, store = indices[0], self.store()
        if store is None or not are_consecutive(indices):
            return None
        samples = [self._noted(store, index) for index in indices]
        arrays = store.windows(first, len(indices)) if all(samples) else None
        return None if arrays is None else (arrays, samples)  # type: ignore[return-value]

    def _noted(self, store: Store, index: int) -> Sample | None:
        """All of a sample but its arrays, where these lie in their slots."""
        data = store.row_bytes(index)
        known = self._remembered.get(index)
        if known is not None and known[0] == data:
            return known[1]
        row = self._proven_row(store, index)
        if isinstance(row, str) or row.offset >= 0:
            return None
        fields = metadata.from_bytes(store.metadata(index, row))
        sample = replace(self.source.entry(index), **fields, map_source="cached", cached="hit")
        if len(self._remembered) < MAX_REMEMBERED and Row.unpack(data) == row:
            self._remembered[index] = data, sample
        return sample

    def start(self) -> None:
        """Prove what is there, as far as that takes no time, and make a few samples again: they must be the same."""
        store = self.store()
        if store is None:
            return
        ready = store.ready().tolist()
        for index in random.SystemRandom().sample(ready, min(RECOMPUTED_AT_START, len(ready))):
            row = self._proven_row(store, index)
            if isinstance(row, Row) and not self._is_what_stages_make(index, row):
                self._discard(store, self.source.names[index])
                return
        deadline = time.monotonic() + PROVE_AHEAD_SECONDS
        for index in takewhile(lambda _: time.monotonic() < deadline, ready):
            self._proven_row(store, index)

    def fill(self, keep: Callable[[int], str], threads: int) -> Generator[str]:
        """Call `keep` for every sample, in threads, and tell how each came about: "full" where nothing more is kept."""
        # From somewhere, so that two processes do not go along side by side.
        first = random.SystemRandom().randrange(len(self.source))
        with ThreadPoolExecutor(threads) as pool:
            keep_if_any = lambda index: "full" if self.stopped else keep(index)  # noqa: E731
            yield from pool.map(keep_if_any, [*range(first, len(self.source)), *range(first)])

    @property
    def covered(self) -> float:
        """Share of the samples that are kept."""
        store = self.store()
        return len(store.ready()) / len(self.source) if store else 0.0

    def settle(self, **events: int) -> None:
        """Note the hits, misses and invalid ones of an epoch for `ocr cache stats`."""
        try:
            if (store := self.store()) is not None:
                store.count(**events)
        except OSError as error:
            self._stop(f"cannot be written to ({error}); what it was of use for is not counted")

    def store(self) -> Store | None:
        """The files, as soon as there are any."""
        if self._process != os.getpid():
            self._forget()
        if self._store is None and not self.stopped:
            with self._lock:
                if self._store is None:
                    self._open()
        return self._store

    def _open(self) -> None:
        try:
            self._store, self._candidate = find_store(
                self.root, self._name, lambda store: holds_pages_of(store, self.source)
            )
        except OSError as error:
            self._stop(f"cannot be opened ({error}); pages are made anew every time")
        if self._store is not None and not self._store.writable:
            self._stop(f"may not be written to, and covers {self.covered:.0%}; other pages are made anew every time")

    def _fetch(self, index: int) -> Sample | str:
        """The sample, or "miss" or "invalid"."""
        store = self.store()
        if store is None:
            return "miss"
        row = self._proven_row(store, index)
        if isinstance(row, str):
            return row
        if (record := store.read(index, row)) is None:
            return "invalid"
        return replace(to_sample(record, self.source.entry(index)), cached="hit")

    def _proven_row(self, store: Store, index: int) -> Row | str:
        row = store.row(index)
        if row is None:
            return "miss"
        if self._proven[index] != row.checksum:
            if not self._prove(store, index, row):
                return "invalid"
            self._proven[index] = row.checksum
        return row

    def _prove(self, store: Store, index: int, row: Row) -> bool:
        if row.annotation != self.source.annotation_digest(index):
            return False
        signature = self.source.signature(index)
        if signature is None:
            return False
        if row.signature != signature:
            try:
                if row.content != content_digest(self.source.read(index).encoded):
                    return False
            except DataError:
                return False  # Whoever makes the page is told why.
            if store.writable and (settled := signature.settled()) != UNKNOWN:
                with suppress(OSError):  # A disk that takes nothing costs the next run a look at the file.
                    store.write_row(index, row._replace(signature=settled))
        record = store.read(index, row)
        return record is not None and record.checksum() == row.checksum

    def _make(self, index: int, outcome: str) -> Sample:
        signature = self.source.signature(index)
        raw = self.source.read(index)
        content = content_digest(raw.encoded)
        known = self._known(index, content, raw)
        sample = self.make(raw) if known is None else to_sample(known, self.source.entry(index))
        if not self.stopped and signature is not None:
            self._keep(index, sample, content, signature)
        return replace(sample, cached=outcome if known is None else "hit")

    def _known(self, index: int, content: bytes, raw: Sample) -> Record | None:
        """The same page in another cache of these stages; a list of pages that grew does not begin anew."""
        with self._lock if self._relatives is None else nullcontext():
            self._relatives = self._relatives or Relatives(self._candidate, RECOMPUTED_AT_START)
        annotation = self.source.annotation_digest(index)
        return self._relatives.find(content, annotation, lambda: to_record(self.make(raw), self.cut))

    def _keep(self, index: int, sample: Sample, content: bytes, signature: Signature) -> None:
        record = to_record(sample, self.cut)
        try:
            store = self._store or self._create(record)
            # Two runs that disagree about a sample, one before an edit and one after, must not replace it in turns.
            if self._written[index] or not self._affords(store, record):
                return
            self._written[index] = 1
            row = store.write(index, record, content, self.source.annotation_digest(index), signature.settled())
            self._proven[index] = row.checksum
        except (OSError, DamagedStoreError) as error:
            self._stop(f"cannot be written to ({error}); pages that are not in it are made anew every time")

    def _affords(self, store: Store, record: Record) -> bool:
        needed = sum(array.nbytes for array in record.arrays.values())
        if store.used_bytes + needed <= self.budget.limit(self.root, store.used_bytes):
            return True
        self._stop(
            f"is full at {store.used_bytes / 1e9:.2f} GB ({self.budget}): it covers {self.covered:.0%} of the pages, "
            "and the others are made anew every epoch. Raise cache.max_bytes if there is room"
        )
        return False

    def _stop(self, reason: str) -> None:
        if not self.stopped:
            self.stopped = reason
            log.warning("%s: the cache %s", self._store.folder if self._store else self.root, reason)

    @contextmanager
    def _turn(self, index: int) -> Iterator[None]:
        """Be the only one to make a sample; whoever made it meanwhile has kept it."""
        with ExitStack() as turn:
            if self._store is None and not self.stopped:
                # The layout of a cache is that of its first sample, so whoever makes that keeps the others waiting.
                turn.enter_context(self._lock)
                if self.store() is not None:
                    turn.close()
            if self._store is not None and not self.stopped:
                turn.enter_context(self._store.claim(index))
            yield

    def _create(self, record: Record) -> Store:
        self.root.mkdir(parents=True, exist_ok=True)
        dtype = str(record.arrays["image"].dtype) if self.cut.page else None
        layout = Layout(len(self.source), *record.size_hw, dtype, self.cut.maps)
        about = {"dataset": self.source.location, "keeps": str(self.cut), "stages": self.stages, "created": time.time()}
        self._store = Store.create(self._candidate, layout, about)
        return self._store

    def _is_what_stages_make(self, index: int, row: Row) -> bool:
        try:
            sample = self.make(self.source.read(index))
        except DataError:
            return True  # Gone since it was proven; whoever asks for it is told.
        return to_record(sample, self.cut).checksum() == row.checksum

    def _discard(self, store: Store, name: str) -> None:
        reason = "though nothing tells why. Does a stage depend on something that is no parameter of it?"
        log.warning(
            "%s: the whole cache is made anew: the stages make something else of %s, %s", store.folder, name, reason
        )
        self._shared.zero_()
        with self._lock:
            self._relatives = Relatives()
            self._store = None
            try:
                remove_store(store.folder)
            except OSError as error:
                self._stop(f"cannot be removed ({error}) and is not used; pages are made anew every time")
