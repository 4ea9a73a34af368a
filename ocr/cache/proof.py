"""Proof of a hit: the sample was made of this file and this annotation, and its bytes have their checksum."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch

from ocr.cache.row_format import Row
from ocr.cache.store import Store
from ocr.errors import DataError
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.source import UNKNOWN, Signature, Source

PROBES = 8
_CHECKSUM, _WRITTEN = 0, 1


class Proof:
    """Proves each row once per run; worker processes share what is proven."""

    def __init__(self, source: Source) -> None:
        self._source = source
        # Per sample the checksum that was proven, and whether it was written in this run.
        self._shared = torch.zeros((2, len(source)), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def row(self, store: Store, index: int) -> Row | str:
        """The proven row of a sample, or "miss" or "invalid"."""
        row = store.row(index)
        if row is None:
            return "miss"
        if self._shared.numpy()[_CHECKSUM, index] != row.checksum:
            if not self._holds(store, index, row):
                return "invalid"
            self._shared.numpy()[_CHECKSUM, index] = row.checksum
        return row

    def was_written(self, index: int) -> bool:
        """Whether this run wrote the sample. It does so once: two runs that disagree must not replace it in turns."""
        return bool(self._shared.numpy()[_WRITTEN, index])

    def mark_written(self, index: int) -> None:
        """This run writes the sample."""
        self._shared.numpy()[_WRITTEN, index] = 1

    def accept(self, index: int, row: Row) -> None:
        """A row that this run wrote needs no proof."""
        self._shared.numpy()[_CHECKSUM, index] = row.checksum

    def reset(self) -> None:
        """Nothing is proven or written any more."""
        self._shared.zero_()

    def _holds(self, store: Store, index: int, row: Row) -> bool:
        if row.annotation != self._source.annotation_digest(index):
            return False
        signature = self._source.signature(index)
        if signature is None or not _is_made_of(row, self._source, index, signature):
            return False
        if row.signature != signature and store.writable and (settled := signature.settled()) != UNKNOWN:
            with suppress(OSError):  # If the disk is full, the next run reads the file again.
                store.write_row(index, row._replace(signature=settled))
        record = store.read(index, row)
        return record is not None and record.checksum() == row.checksum


def holds_pages_of(store: Store, source: Source) -> bool:
    """Whether at least half of a few stored samples were made of these pages; other pages may have the same names."""
    ready = store.ready()
    probes = ready[np.linspace(0, len(ready) - 1, min(PROBES, len(ready)), dtype=np.int64)].tolist()
    # Damaged rows do not say what they were made of.
    sound = [(index, row) for index in probes if (row := store.row(index)) is not None]
    return 2 * sum(_is_made_of(row, source, index, source.signature(index)) for index, row in sound) >= len(sound)


def _is_made_of(row: Row, source: Source, index: int, signature: Signature | None) -> bool:
    """Whether a sample was made of this file: by its signature, or else by its content."""
    with suppress(DataError):  # Making the page reports the error.
        return row.signature == signature or row.content == content_digest(source.read(index).encoded)
    return False
