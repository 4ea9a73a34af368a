"""Proof of a hit: the sample was made of this file, name and annotation, and its bytes have their checksum."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from ocr.cache.row_format import Row
from ocr.cache.store import Store
from ocr.errors import DataError
from ocr.pipeline.fingerprint import content_digest, digest
from ocr.pipeline.signature import UNKNOWN, Signature
from ocr.pipeline.source import Origin

PROBES = 8
_CHECKSUM, _FILE, _LOOK, _WRITTEN = range(4)


class Proof:
    """Proves each row once per run, and looks at its file once per epoch; worker processes share what is proven."""

    def __init__(self, source: Origin) -> None:
        self._source = source
        # Per sample the checksum that was proven, the hash of its file's signature, the number of the look in which
        # this signature was last seen, and whether the sample was written in this run. The last row has today's look.
        # Fresh shared memory is zero and takes room only where it is written; zeros that are moved there take it all.
        memory = torch.UntypedStorage._new_shared(8 * 4 * (len(source) + 1))  # type: ignore[no-untyped-call]
        self._shared = torch.empty(0, dtype=torch.int64).set_(memory).view(-1, 4)
        self._table = self._shared.numpy()
        self._table[-1, _LOOK] = 1

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("_source", "_shared")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _table=state["_shared"].numpy())

    def row(self, store: Store, index: int) -> Row | str:
        """The proven row of a sample, or "miss" or "invalid"."""
        row = store.row(index)
        if row is None:
            return "miss"
        return row if self.is_current(index, row.checksum) or self._prove(store, index, row) else "invalid"

    def is_current(self, index: int, checksum: int) -> bool:
        """Whether a row of this checksum is proven, its file looked at in this epoch."""
        return self.checksum(index) == checksum

    def checksum(self, index: int) -> int:
        """The proven checksum of a sample, its file looked at in this epoch; 0 if none is proven."""
        if self._table[index, _LOOK] != self._table[-1, _LOOK]:
            self._look_at(index)
        return int(self._table[index, _CHECKSUM])

    def checksums(self, first: int, count: int) -> list[int]:
        """The proven checksums of neighbouring samples, their files looked at in this epoch."""
        proven = self._table[first : first + count]
        for at in np.flatnonzero(proven[:, _LOOK] != self._table[-1, _LOOK]).tolist():
            self._look_at(first + at)
        found: list[int] = proven[:, _CHECKSUM].tolist()
        return found

    def _look_at(self, index: int) -> None:
        """Note that the file is the one that was proven, or that it must be proven again."""
        if hash(self._source.signature(index)) == self._table[index, _FILE]:
            self._table[index, _LOOK] = self._table[-1, _LOOK]
        else:
            self.forget([index])

    def look(self) -> None:
        """An epoch starts: look at every file again when its page is used."""
        self._table[-1, _LOOK] += 1

    def forget(self, indices: Sequence[int]) -> None:
        """Prove these samples again: what they were made of has changed since."""
        for column in (_CHECKSUM, _WRITTEN):
            self._table[indices, column] = 0

    def was_written(self, index: int) -> bool:
        """Whether this run wrote the sample. It does so once: two runs that disagree must not replace it in turns."""
        return bool(self._table[index, _WRITTEN])

    def mark_written(self, index: int) -> None:
        """This run writes the sample."""
        self._table[index, _WRITTEN] = 1

    def accept(self, index: int, row: Row) -> None:
        """A row holds, and its signature is that of the file before it was read."""
        self._table[index, :_WRITTEN] = row.checksum, hash(row.signature), self._table[-1, _LOOK]

    def reset(self) -> None:
        """Nothing is proven or written any more."""
        self._table[:-1] = 0

    def _prove(self, store: Store, index: int, row: Row) -> bool:
        if row.annotation != annotation_and_name(self._source, index):
            return False
        signature = self._source.signature(index)
        if signature is None:
            return False
        settled = signature.settled()
        if not _is_made_of(row, self._source, index, signature):
            return False
        if row.signature != signature and store.writable and settled != UNKNOWN:
            with suppress(OSError):  # If the disk is full, the next run reads the file again.
                store.write_row(index, row._replace(signature=settled))
        record = store.read(index, row)
        if record is None or record.checksum() != row.checksum:
            return False
        self.accept(index, row._replace(signature=settled))
        return True


def annotation_and_name(source: Origin, index: int) -> bytes:
    """Digest of what a sample is made of besides its file: stages see the annotation and the file's name."""
    return bytes.fromhex(digest(source.annotation_digest(index), source.entry(index).filename))


def holds_pages_of(store: Store, source: Origin) -> bool:
    """Whether at least half of a few stored samples were made of these pages; other pages may have the same names."""
    ready = store.ready()
    probes = ready[np.linspace(0, len(ready) - 1, min(PROBES, len(ready)), dtype=np.int64)].tolist()
    # Damaged rows do not say what they were made of.
    sound = [(index, row) for index in probes if (row := store.row(index)) is not None]
    return 2 * sum(_is_made_of(row, source, index, source.signature(index)) for index, row in sound) >= len(sound)


def _is_made_of(row: Row, source: Origin, index: int, signature: Signature | None) -> bool:
    """Whether a sample was made of this file: by its signature, or else by its content."""
    with suppress(DataError):  # Making the page reports the error.
        return row.signature == signature or row.content == content_digest(source.read(index).encoded)
    return False
