"""Which caches hold pages of a dataset: its own, and others of the same stages whose samples need not be made again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ocr.cache.row_format import Row
from ocr.cache.store import DamagedStoreError, Store
from ocr.errors import DataError
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.record import Record
from ocr.pipeline.source import Source

log = logging.getLogger(__name__)
PROBES = 8


def holds_pages_of(store: Store, source: Source) -> bool:
    """Whether at least half of a few pages are the ones that were cached; names alone may be those of other pages."""
    ready = store.ready()
    probes = ready[np.linspace(0, len(ready) - 1, min(PROBES, len(ready)), dtype=np.int64)].tolist()
    # Damaged rows tell nothing of whose they are.
    sound = [(index, row) for index in probes if (row := store.row(index)) is not None]
    return 2 * sum(_is_of(row, source, index) for index, row in sound) >= len(sound)


def _is_of(row: Row, source: Source, index: int) -> bool:
    with suppress(DataError):
        return row.signature == source.signature(index) or row.content == content_digest(source.read(index).encoded)
    return False


class Relatives:
    """Finds a sample by what it was made of; a page that was added, renamed or moved leaves the others as they are."""

    def __init__(self, own: Path | None = None, untrusted: int = 0) -> None:
        """`own` is the folder of the cache itself; the first `untrusted` finds are made again and compared."""
        self._untrusted = untrusted
        self._known: dict[tuple[bytes, bytes], tuple[Store, int]] = {}
        folders = sorted(own.parent.glob(f"{own.name.split('-')[0]}-*")) if own else []
        for folder in folders:
            if folder != own:
                with suppress(DamagedStoreError, OSError):
                    self._learn(Store(folder))

    def _learn(self, store: Store) -> None:
        for index in store.ready().tolist():
            row = store.row(index)
            if row is not None:
                self._known[row.content, row.annotation] = store, index

    def find(self, content: bytes, annotation: bytes, make: Callable[[], Record]) -> Record | None:
        """What was made of this file and annotation, its checksum proven."""
        store, index = self._known.get((content, annotation), (None, 0))
        row = store.row(index) if store is not None else None
        if store is None or row is None or (row.content, row.annotation) != (content, annotation):
            return None
        record = store.read(index, row)
        if record is None or record.checksum() != row.checksum:
            return None
        if self._untrusted > 0:
            self._untrusted -= 1
            if make().checksum() != row.checksum:
                log.warning("%s is not what its stages make now, and is not used", store.folder)
                self._known.clear()
                return None
        return record
