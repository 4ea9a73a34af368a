"""Which caches hold pages of a dataset: its own, and others of the same stages whose samples need not be made again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.record import Record
from ocr.pipeline.source import Source
from ocr.pipeline.store import DamagedStoreError, Store

PROBES = 8


def holds_pages_of(store: Store, source: Source) -> bool:
    """Whether at least half of a few pages are the ones that were cached; names alone may be those of other pages."""
    ready = store.ready()
    probes = ready[np.linspace(0, len(ready) - 1, min(PROBES, len(ready)), dtype=np.int64)].tolist()
    same = 0
    for index in probes:
        row, signature = store.row(index), source.signature(index)
        if row is not None and signature is not None:
            same += row.signature == signature or row.content == content_digest(source.read(index).encoded)
    return 2 * same >= len(probes)


class Relatives:
    """Finds a sample by what it was made of; a page that was added, renamed or moved leaves the others as they are."""

    def __init__(self, own: Path) -> None:
        """`own` is the folder of the cache itself; those of the same stages begin with the same digest."""
        self._stores: list[Store] = []
        self._known: dict[tuple[bytes, bytes], tuple[Store, int]] = {}
        digest = own.name.split("-")[0]
        for folder in sorted(own.parent.glob(f"{digest}-*")):
            if folder != own:
                with suppress(DamagedStoreError):
                    self._learn(Store(folder))

    def _learn(self, store: Store) -> None:
        for index in store.ready().tolist():
            row = store.row(index)
            if row is not None:
                self._known[row.content, row.annotation] = store, index

    def find(self, content: bytes, annotation: bytes) -> Record | None:
        """What was made of this file and annotation, its checksum proven."""
        store, index = self._known.get((content, annotation), (None, 0))
        row = store.row(index) if store is not None else None
        if store is None or row is None or (row.content, row.annotation) != (content, annotation):
            return None
        record = store.read(index, row)
        return record if record is not None and record.checksum() == row.checksum else None
