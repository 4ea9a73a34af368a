"""Other caches of the same stages: samples that they hold need not be made again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ocr.cache.store import Store
from ocr.cache.store_folder import DamagedStoreError
from ocr.pipeline.record import Record

log = logging.getLogger(__name__)


class Siblings:
    """Finds a sample by what it was made of, its name included; adding or renaming a page leaves the others cached."""

    def __init__(self, own: Path | None = None, untrusted: int = 0) -> None:
        """`own` is the folder of the cache itself; the first `untrusted` samples are made again and compared."""
        self._untrusted = untrusted
        self._known: dict[tuple[bytes, bytes], tuple[Store, int]] = {}
        folders = sorted(own.parent.glob(f"{own.name.split('-')[0]}-*")) if own else []
        for folder in folders:
            if folder != own:
                with suppress(DamagedStoreError, OSError):
                    self._add(Store(folder))

    def _add(self, store: Store) -> None:
        for index in store.ready().tolist():
            row = store.row(index)
            if row is not None:
                self._known[row.content, row.annotation] = store, index

    def find(self, content: bytes, annotation: bytes, make: Callable[[], Record]) -> Record | None:
        """What was made of this file and of this annotation and name, its checksum proven; `make` makes it again."""
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
                log.warning("%s is not used: its stages now make something else", store.folder)
                self._known.clear()
                return None
        return record
