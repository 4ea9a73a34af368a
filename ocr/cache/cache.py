"""cache: what the fixed stages made of a page, one copy per machine, kept between runs, proven before use.

A hit is proven: the file is the one it was made of (its signature, or else its content), its name and annotation are
the same, the stages have the same parameters, code and libraries, and the bytes have their checksum.
File and annotation are looked at in every epoch, the rest once per run.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice, takewhile
from typing import Any

from numpy.typing import NDArray

from ocr.cache.budget import Budget
from ocr.cache.folder import cache_root
from ocr.cache.handle import StoreHandle
from ocr.cache.proof import Proof, annotation_and_name
from ocr.cache.row_format import FORMAT, Row
from ocr.cache.store import CUT_SHORT, Store
from ocr.cache.store_folder import DamagedStoreError, TruncatedStoreError
from ocr.errors import DataError
from ocr.pipeline import metadata
from ocr.pipeline.batch import are_consecutive
from ocr.pipeline.cut import Cut
from ocr.pipeline.dense import codec_version
from ocr.pipeline.fingerprint import content_digest, digest, stages_digest
from ocr.pipeline.record import Record, to_record, to_sample
from ocr.pipeline.sample import Sample
from ocr.pipeline.signature import UNKNOWN, Signature
from ocr.pipeline.source import Source

log = logging.getLogger(__name__)
MAX_REMEMBERED = 4096
"""Samples whose metadata a process remembers, about 10 kB each: reading it is most of the time of a cached batch."""
RECOMPUTED_AT_START = 3
FILLED_AT_ONCE = 4096
PROVE_AHEAD_SECONDS = 2.0
"""At 30 GB/s of checksums this is a few thousand pages of validation; the others are proven on first use."""


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
        form_reason: str = "",
        max_total_bytes: int | str = "auto",
    ) -> None:
        self.source, self.make, self.cut, self.form_reason = source, make, cut, form_reason
        # Another version may compress the same page to other bytes.
        codec = f" {codec_version()}" if cut.dense else ""
        fingerprint = digest(f"format {FORMAT}: {cut}{codec}", stages_digest(tuple(stages)))
        name = f"{fingerprint[:16]}-{source.names_digest[:8]}"
        path = " -> ".join(map(repr, stages))
        about = {"dataset": source.location, "keeps": str(cut), "form_reason": form_reason, "stages": path}
        budget = Budget(max_bytes, max_total_bytes, larger_than_memory=cut.dense)
        self.handle = StoreHandle(cache_root(folder), name, source, about, budget)
        self._proof = Proof(source)
        self._remembered: dict[int, tuple[bytes, int, Sample]] = {}
        self._lost: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_remembered": {}}

    def sample(self, index: int) -> Sample:
        """A sample at the cut, made and stored if it is missing; its `cached` says which."""
        found = self._fetch(index)
        if isinstance(found, str):
            with self.handle.turn(index):
                found = self._fetch(index)
                return found if isinstance(found, Sample) else self._make(index, found)
        return found

    def view(self, indices: Sequence[int]) -> tuple[dict[str, NDArray[Any]], list[Sample]] | None:
        """Consecutive samples as one array per column, nothing copied; None if they are not stored like that."""
        store = self.store()
        if store is None or not are_consecutive(indices):
            return None
        samples = self._all_without_arrays(store, indices)
        arrays = store.windows(indices[0], len(indices)) if samples is not None else None
        return None if samples is None or arrays is None else (arrays, samples)

    def _all_without_arrays(self, store: Store, indices: Sequence[int]) -> list[Sample] | None:
        """All of neighbouring samples except their arrays; None if these are not in their slots."""
        samples = []
        proven = self._proof.checksums(indices[0], len(indices))
        for index, checksum, data in zip(indices, proven, store.rows_bytes(indices[0], len(indices)), strict=True):
            known = self._remembered.get(index)
            is_known = known is not None and known[:2] == (data, checksum)
            sample = known[2] if known is not None and is_known else self._without_arrays(store, index, data)
            if sample is None:
                return None
            samples.append(sample)
        return samples

    def _without_arrays(self, store: Store, index: int, data: bytes) -> Sample | None:
        row = self._proof.row(store, index)
        if isinstance(row, str) or row.offset >= 0 or (record := store.read(index, row)) is None:
            return None
        fields = metadata.from_bytes(record.metadata)
        sample = replace(self.source.entry(index), **fields, map_source="cached", cached="hit")
        if len(self._remembered) < MAX_REMEMBERED and Row.unpack(data) == row:
            self._remembered[index] = data, row.checksum, sample
        return sample

    def is_current(self, indices: Sequence[int]) -> bool:
        """Whether samples that were viewed before are still those of their files and annotation."""
        store = self.store()
        return store is not None and self._all_without_arrays(store, indices) is not None

    def look(self, changed: Sequence[int]) -> None:
        """An epoch starts: look at every file again when its page is used; `changed` have another annotation."""
        self._proof.look()
        self._proof.forget(changed)

    def start(self) -> None:
        """Prove what is stored, within two seconds, and make a few samples again: they must be the same."""
        store = self.store()
        if store is None:
            return
        ready = store.ready()
        chosen = random.SystemRandom().sample(range(len(ready)), min(RECOMPUTED_AT_START, len(ready)))
        for index in ready[chosen].tolist():
            row = self._proof.row(store, index)
            if isinstance(row, Row) and not self._is_what_stages_make(index, row):
                self.handle.trust_no_sibling()
                self._rebuild(
                    store,
                    f"the stages now make something else of {self.source.names[index]}, for no known reason. "
                    "Does a stage depend on something that is not one of its parameters?",
                )
                return
        deadline = time.monotonic() + PROVE_AHEAD_SECONDS
        for index in takewhile(lambda _: time.monotonic() < deadline, map(int, ready)):
            self._proof.row(store, index)

    def fill(self, keep: Callable[[int], str], threads: int) -> Generator[str]:
        """Call `keep` for every sample, in threads, and yield what it returns; "full" if nothing more is stored."""
        # From a random sample on, so that two processes do not make the same ones at the same time.
        first = random.SystemRandom().randrange(len(self.source))
        with ThreadPoolExecutor(threads) as pool:
            keep_if_any = lambda index: "full" if self.stopped else keep(index)  # noqa: E731
            indices = chain(range(first, len(self.source)), range(first))
            # A pool queues all that it is given at once.
            while some := list(islice(indices, FILLED_AT_ONCE)):
                yield from pool.map(keep_if_any, some)

    @property
    def covered(self) -> float:
        """Share of the samples that are stored."""
        return self.handle.covered

    @property
    def stopped(self) -> str:
        """Why nothing more is stored; empty as long as samples are stored."""
        return self.handle.stopped

    def store(self) -> Store | None:
        """The files; None as long as nothing is stored. Files that were truncated meanwhile are made again."""
        store = self.handle.open()
        if store is not None and store.is_short():
            self._replace_cut(store)
            store = self.handle.open()
        return store

    def _replace_cut(self, store: Store) -> None:
        self._lost.update(store.ready().tolist())
        self._rebuild(store, CUT_SHORT)

    def _rebuild(self, store: Store, reason: str) -> None:
        if self.handle.discard(store):
            log.warning("%s: the whole cache is rebuilt: %s", store.folder, reason)
            self._proof.reset()
            self._remembered.clear()

    def settle(self, **events: int) -> None:
        """Add the hits, misses and invalid samples of an epoch to the counts that `ocr cache stats` shows."""
        try:
            if (store := self.store()) is not None:
                store.count(**events)
        except OSError as error:
            self.handle.stop(f"cannot be written ({error}); its hits and misses are not counted")

    def _fetch(self, index: int) -> Sample | str:
        """The sample, or "miss" or "invalid"."""
        store = self.store()
        if store is None:
            return self._absent(index)
        row = self._proof.row(store, index)
        if isinstance(row, str):
            return self._absent(index) if row == "miss" else row
        if (record := store.read(index, row)) is None:
            return "invalid"
        return replace(to_sample(record, self.source.entry(index)), cached="hit")

    def _absent(self, index: int) -> str:
        """Pages that a truncated file held count as invalid when they are made again, not as missing."""
        return "invalid" if index in self._lost else "miss"

    def _make(self, index: int, outcome: str) -> Sample:
        origin = self._origin(index)
        # Judged before the file is read: one that changed just now may change again while the page is made.
        settled = origin[0].settled() if origin[0] is not None else UNKNOWN
        raw = self.source.read(index)
        content = content_digest(raw.encoded)
        known = self._from_sibling(content, origin[1], raw)
        sample = self.make(raw) if known is None else to_sample(known, self.source.entry(index))
        if not self.stopped and origin[0] is not None and self._origin(index) == origin:
            self._keep(index, sample, content, origin[1], settled)
        self._lost.discard(index)
        return replace(sample, cached=outcome if known is None else "hit")

    def _origin(self, index: int) -> tuple[Signature | None, bytes]:
        """What a sample is made of."""
        return self.source.signature(index), annotation_and_name(self.source, index)

    def _from_sibling(self, content: bytes, annotation: bytes, raw: Sample) -> Record | None:
        """The same page in another cache of these stages: a list of pages that grew does not start from nothing."""
        siblings = self.handle.siblings(RECOMPUTED_AT_START)
        return siblings.find(content, annotation, lambda: to_record(self.make(raw), self.cut))

    def _keep(self, index: int, sample: Sample, content: bytes, annotation: bytes, signature: Signature) -> None:
        record = to_record(sample, self.cut)
        try:
            store = self.handle.create(record)
            if self._proof.was_written(index) or not self.handle.has_room_for(record):
                return
            self._proof.mark_written(index)
            self._proof.accept(index, store.write(index, record, content, annotation, signature))
        except TruncatedStoreError:
            self._replace_cut(store)  # The next use of the page stores it.
        except (OSError, DamagedStoreError) as error:
            self.handle.stop(f"cannot be written ({error}); pages that are not in it are made again every time")

    def _is_what_stages_make(self, index: int, row: Row) -> bool:
        try:
            sample = self.make(self.source.read(index))
        except DataError:
            return True  # The file went away since the proof; reading the page reports it.
        return to_record(sample, self.cut).checksum() == row.checksum
