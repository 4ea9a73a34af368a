"""Caches of the same stages over other lists of pages: what they hold need not be made again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ocr.pipeline.record import Record
from ocr.pipeline.store import DamagedStoreError, Store


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
