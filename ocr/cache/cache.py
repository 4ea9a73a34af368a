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
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ocr.cache.budget import Budget
from ocr.cache.folder import cache_root
from ocr.cache.handle import StoreHandle
from ocr.cache.proof import Proof, annotation_and_name
from ocr.cache.row_format import FORMAT, Row
from ocr.cache.store import CAN_ADVISE, CUT_SHORT, Store
from ocr.cache.store_folder import DamagedStoreError, TruncatedStoreError
from ocr.cache.waste import TOO_MUCH
from ocr.errors import DataError
from ocr.pipeline.batch import are_consecutive
from ocr.pipeline.cut import Cut
from ocr.pipeline.dense import codec_version
from ocr.pipeline.fingerprint import content_digest, digest, stages_digest
from ocr.pipeline.record import Record, to_record, to_sample
from ocr.pipeline.sample import Sample
from ocr.pipeline.signature import UNKNOWN, Signature
from ocr.pipeline.source import Origin

log = logging.getLogger(__name__)
MAX_REMEMBERED = 4096
"""Samples that a process remembers, about 10 kB each: parsing metadata is most of the time of a cached batch."""
RECOMPUTED_AT_START = 3
FILLED_AT_ONCE = 4096
PROVE_AHEAD_SECONDS = 2.0
"""At 30 GB/s of checksums this is a few thousand pages of validation; the others are proven on first use."""
MAX_ADVISED_BYTES = 64 << 20
"""Proving reads the data from its beginning: the disk is busy with that while a few pages are made again."""


class Remembered(NamedTuple):
    """A sample that was read before: the same as long as its row is, and its file looked at and proven."""

    row_bytes: bytes
    row: Row
    sample: Sample


class Cache:
    """The samples of one dataset at its cut."""

    unit = "page"  # What a sample is to people.

    def __init__(
        self,
        source: Origin,
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
        about = {"dataset": source.location, "unit": self.unit, "keeps": str(cut), "form_reason": form_reason}
        about["stages"] = " -> ".join(map(repr, stages))
        budget = Budget(max_bytes, max_total_bytes, larger_than_memory=cut.dense)
        self.handle = StoreHandle(cache_root(folder), name, source, about, budget)
        self._proof = Proof(source)
        self._remembered: dict[int, Remembered] = {}
        self._remembered_map: NDArray[Any] | None = None
        """The map of the file that remembered samples are views of."""
        self._lost: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_remembered": {}, "_remembered_map": None}

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
        samples = self._all_in_slots(store, indices)
        arrays = store.windows(indices[0], len(indices)) if samples is not None else None
        return None if samples is None or arrays is None else (arrays, samples)

    def _all_in_slots(self, store: Store, indices: Sequence[int]) -> list[Sample] | None:
        """Neighbouring samples; None if one of them is not in its slots."""
        samples = []
        proven = self._proof.checksums(indices[0], len(indices))
        for index, checksum, data in zip(indices, proven, store.rows_bytes(indices[0], len(indices)), strict=True):
            known = self._recall(store, index, data, checksum) or self._read(store, index, data)
            if isinstance(known, str) or known.row.offset >= 0:
                return None
            samples.append(known.sample)
        return samples

    def _recall(self, store: Store, index: int, data: bytes, checksum: int) -> Remembered | None:
        """The sample of a row of these bytes and this proven checksum, if it was read before."""
        known = self._remembered.get(index)
        is_known = known is not None and known.row_bytes == data and known.row.checksum == checksum
        return known if is_known and self._remembered_map is store.mapped else None

    def _read(self, store: Store, index: int, data: bytes) -> Remembered | str:
        """The sample, or "miss" or "invalid"; `data` are the bytes of its row."""
        row = self._proof.row(store, index)
        if isinstance(row, str):
            return row
        if (record := store.read(index, row)) is None:
            return "invalid"
        found = Remembered(data, row, self._unpack(record, index, "hit"))
        if self._remembered_map is not store.mapped:
            # A file that grew is mapped again. Samples hold on to their map, which has a file descriptor.
            self._remembered.clear()
            self._remembered_map = store.mapped
        if len(self._remembered) < MAX_REMEMBERED and Row.unpack(data) == row:
            self._remembered[index] = found
        return found

    def is_current(self, indices: Sequence[int]) -> bool:
        """Whether samples that were viewed before are still those of their files and annotation."""
        store = self.store()
        return store is not None and self._all_in_slots(store, indices) is not None

    def look(self, changed: Sequence[int]) -> None:
        """An epoch starts: look at every file again when its page is used; `changed` have another annotation."""
        self._proof.look()
        self._proof.forget(changed)
        if (store := self.handle.wasteful()) is not None:
            self._rebuild(store, TOO_MUCH)

    def start(self) -> None:
        """Prove what is stored, within two seconds, and make a few samples again: they must be the same."""
        store = self.store()
        if store is None:
            return
        if CAN_ADVISE and not store.is_large():
            store.will_need(0, min(store.data_bytes, MAX_ADVISED_BYTES))
        ready = store.ready()
        chosen = random.SystemRandom().sample(range(len(ready)), min(RECOMPUTED_AT_START, len(ready)))
        rows = {index: self._proof.row(store, index) for index in ready[chosen].tolist()}
        proven = [(index, row) for index, row in rows.items() if isinstance(row, Row)]
        with ThreadPoolExecutor(max(1, len(proven))) as pool:
            same = pool.map(lambda both: self._is_what_stages_make(*both), proven)
            self._prove_ahead(store, ready)
            changed = [index for (index, _), is_same in zip(proven, same, strict=True) if not is_same]
        if changed:
            self.handle.trust_no_sibling()
            self._rebuild(
                store,
                f"the stages now make something else of {self.source.names[changed[0]]}, for no known reason. "
                "Does a stage depend on something that is not one of its parameters?",
            )

    def _prove_ahead(self, store: Store, ready: NDArray[Any]) -> None:
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
        if store is None and self._remembered:
            self._forget_all()  # They keep the files of a cache that gave way in memory.
        return store

    def _forget_all(self) -> None:
        self._remembered.clear()
        self._remembered_map = None

    def _replace_cut(self, store: Store) -> None:
        self._lost.update(store.ready().tolist())
        self._rebuild(store, CUT_SHORT)

    def _rebuild(self, store: Store, reason: str) -> None:
        if self.handle.discard(store):
            log.warning("%s: the whole cache is rebuilt: %s", store.folder, reason)
            self._proof.reset()
            self._forget_all()

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
        data = store.rows_bytes(index, 1)[0]
        # Of a cache larger than memory, each sample is announced to the system when it is read.
        known = None if store.is_large() else self._recall(store, index, data, self._proof.checksum(index))
        found = known or self._read(store, index, data)
        if isinstance(found, Remembered):
            return found.sample
        return self._absent(index) if found == "miss" else found

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
        sample = self.make(raw) if known is None else self._unpack(known, index)
        if not self.stopped and origin[0] is not None and self._origin(index) == origin:
            self._keep(index, sample, content, origin[1], settled)
        self._lost.discard(index)
        return replace(sample, cached=outcome if known is None else "hit")

    def _origin(self, index: int) -> tuple[Signature | None, bytes]:
        """What a sample is made of."""
        return self.source.signature(index), annotation_and_name(self.source, index)

    def _from_sibling(self, content: bytes, annotation: bytes, raw: Sample) -> Record | None:
        """The same page in another cache of these stages: a list of pages that grew does not start from nothing."""
        return self.handle.siblings(RECOMPUTED_AT_START).find(content, annotation, lambda: self._pack(self.make(raw)))

    def _keep(self, index: int, sample: Sample, content: bytes, annotation: bytes, signature: Signature) -> None:
        record = self._pack(sample)
        try:
            store = self.handle.create(record)
            if self._proof.was_written(index) or not self.handle.has_room_for(record):
                return
            self._proof.mark_written(index)
            self._proof.accept(index, store.write(index, record, content, annotation, signature))
        except TruncatedStoreError:
            self._replace_cut(store)  # The next use of the page stores it.
        except (OSError, DamagedStoreError) as error:
            self.handle.stop(f"cannot be written ({error}); pages that are not in it are recomputed every time")

    def _is_what_stages_make(self, index: int, row: Row) -> bool:
        try:
            return self._pack(self.make(self.source.read(index))).checksum() == row.checksum
        except DataError:
            return True  # The file went away since the proof; reading the page reports it.

    def _pack(self, sample: Sample) -> Record:
        """What is stored of a sample."""
        return to_record(sample, self.cut)

    def _unpack(self, record: Record, index: int, cached: str = "") -> Sample:
        """The sample that was stored."""
        return to_sample(record, self.source.entry(index), cached)
