"""The files of one cache: one row per sample, and a sparse file of columns that all readers share as one memory map.

    about.json   which dataset and stages it belongs to, and its layout; written once
    rows         counts of all runs, then per sample whether it is stored, at which offset, made of what, its checksum
    data         one column per array, one slot per sample; after them whatever does not fit a slot, or replaces one

Data is written first and its row last: a writer that is killed leaves an empty row, and what a crash of the machine
tears apart fails its checksum. A slot that may be in use is never overwritten with other content.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.cache.claims import Claims
from ocr.cache.lock import lock_within
from ocr.cache.row_format import METADATA_SLOT_BYTES, ROW_BYTES, ArraySpec, Layout, Row, align
from ocr.cache.store_folder import DamagedStoreError, TruncatedStoreError, create_store, read_about
from ocr.mapped_file import map_file, private_window
from ocr.pipeline.record import Record
from ocr.pipeline.signature import Signature
from ocr.system import free_memory, total_memory

EVENTS = ("hits", "misses", "invalid")
_COUNTS = struct.Struct("<qqq")
_ROWS_AT_ONCE = 1 << 16
_LENGTH = struct.Struct("<q")
"""Of the data, behind the counts: as long as it was made at last."""
SHARED_LOCK_SECONDS = 1.0
MIN_DIRTY_BYTES = 64 << 20
CUT_SHORT = "one of its files was truncated while it was in use"
CACHE_LINE_BYTES = 64
CAN_ADVISE = hasattr(os, "posix_fadvise")
LARGE_SHARE = 0.5
"""Caches up to this share of the memory stay there after their first epoch."""
ADVISED_BYTES = 128 << 10
"""Of a longer piece Linux reads only as much as the disk's `read_ahead_kb`, whose default this is."""


class Store:
    """A cache that is open in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows = self._data = -1
        self._dirty = self._max_dirty = self._longest = 0
        self.about, self.layout = read_about(folder)
        self.columns = self.layout.columns()
        self.writable = self._open()
        self._rows_bytes = (self.layout.count + 1) * ROW_BYTES
        needed = max(self.layout.end(), self._allocated_bytes())
        if os.fstat(self._rows).st_size < self._rows_bytes or self.data_bytes < needed:
            raise DamagedStoreError(f"{folder}: one of its files was truncated")
        self.mapped = map_file(self._data)
        self._memory_bytes, self._is_large = total_memory(), False
        self._claims = Claims(self._rows, self.writable)

    @classmethod
    def create(cls, folder: Path, layout: Layout, about: dict[str, Any]) -> Store:
        """Create an empty cache and open it; opens the existing one if another process was faster."""
        create_store(folder, layout, about)
        return cls(folder)

    def _open(self) -> bool:
        """Open the files; False if they can only be read."""
        try:
            self._open_files(os.O_RDWR)
            return True
        except (FileNotFoundError, IsADirectoryError) as error:
            raise DamagedStoreError(f"{error.filename}: {error.strerror}") from error
        except OSError:
            self._open_files(os.O_RDONLY)
            return False

    def _open_files(self, mode: int) -> None:
        self.close()
        self._rows = os.open(self.folder / "rows", mode)
        self._data = os.open(self.folder / "data", mode)
        # Who makes room for another cache does not remove what is open; it holds this lock while it removes.
        with suppress(TimeoutError):
            lock_within(self._data, fcntl.LOCK_SH, SHARED_LOCK_SECONDS, lambda: "")
        if os.fstat(self._data).st_nlink == 0:
            raise DamagedStoreError(f"{self.folder}: it was removed just now")

    def close(self) -> None:
        """Close the files; views that are in use stay valid."""
        for descriptor in (self._rows, self._data):
            if descriptor >= 0:
                os.close(descriptor)
        self._rows = self._data = -1

    def __del__(self) -> None:
        self.close()

    @property
    def data_bytes(self) -> int:
        """Length of the data file, holes included."""
        return os.fstat(self._data).st_size

    @property
    def used_bytes(self) -> int:
        """What the data of all processes takes on disk."""
        return os.fstat(self._data).st_blocks * 512

    def is_large(self) -> bool:
        """Whether it has outgrown the memory, at any time since it was opened.

        From then on samples are asked for whole: what a fault reads around it, up to megabytes, would displace pages
        that are still needed.
        """
        if not self._is_large and self.used_bytes > LARGE_SHARE * self._memory_bytes and CAN_ADVISE:
            self._is_large = True
            self.mapped = map_file(self._data, reads_around=False)
        return self._is_large

    def is_short(self) -> bool:
        """Whether a file was truncated while it is open: touching data that was cut off would end the process."""
        # Known before the file is asked: another thread may make both longer in between.
        known = max(self._longest, len(self.mapped))
        return self.data_bytes < known or os.fstat(self._rows).st_size < self._rows_bytes

    def is_in_place(self) -> bool:
        """Whether the files are still those in the folder: another process may have replaced or removed them."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(os.stat(self.folder / "data"), os.fstat(self._data))
        return False

    def row(self, index: int) -> Row | None:
        """The row of a sample; None if it is not stored, or the row itself is damaged."""
        return Row.unpack(self.rows_bytes(index, 1)[0])

    def rows_bytes(self, first: int, count: int) -> list[bytes]:
        """Neighbouring rows as they are in the file: as long as one stays the same, so does its sample."""
        data = os.pread(self._rows, count * ROW_BYTES, (first + 1) * ROW_BYTES)
        return [data[start : start + ROW_BYTES] for start in range(0, count * ROW_BYTES, ROW_BYTES)]

    def ready(self) -> NDArray[np.int64]:
        """Indices of the samples that have a row."""
        found = [np.zeros(0, dtype=np.int64)]
        for first in range(0, self.layout.count, _ROWS_AT_ONCE):
            length = min(_ROWS_AT_ONCE, self.layout.count - first) * ROW_BYTES
            data = os.pread(self._rows, length, (first + 1) * ROW_BYTES).ljust(length, b"\0")
            rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, ROW_BYTES)
            found.append(first + np.flatnonzero(rows[:, :4].any(axis=1)))
        return np.concatenate(found)

    def read(self, index: int, row: Row) -> Record | None:
        """Read-only views of a sample; None if its row cannot be right."""
        specs = self.layout.arrays(row.height, row.width, row.page_bytes)
        ranges = self._ranges(index, row, specs)
        if self.is_large():
            for start, length in ranges or ():
                self.will_need(start, length)
        mapped = self._mapped_to(sum(ranges[-1])) if ranges is not None else None
        if ranges is None or mapped is None:
            return None
        arrays = {
            name: mapped[start : start + length].view(spec.dtype).reshape(spec.shape)
            for (name, spec), (start, length) in zip(specs.items(), ranges, strict=False)
        }
        return Record(arrays, mapped[ranges[-1][0] : sum(ranges[-1])].tobytes())

    def ranges(self, index: int, row: Row) -> list[tuple[int, int]] | None:
        """Offset and length of each array of a sample, and of its metadata; None if its row cannot be right."""
        return self._ranges(index, row, self.layout.arrays(row.height, row.width, row.page_bytes))

    def _ranges(self, index: int, row: Row, specs: dict[str, ArraySpec]) -> list[tuple[int, int]] | None:
        sizes = [*(spec.nbytes for spec in specs.values()), row.metadata_bytes]
        if row.offset >= 0:
            starts = [row.offset + sum(sizes[:n]) for n in range(len(sizes))]
        elif self.layout.has_slots and (row.height, row.width) == (self.layout.height, self.layout.width):
            starts = [self._slot(name, index) for name in (*specs, "metadata")]
        else:
            return None
        return list(zip(starts, sizes, strict=True))

    def will_need(self, start: int, length: int) -> None:
        """Advise the system to read these bytes now, without waiting for them."""
        with suppress(OSError):  # A file system may take no advice.
            for offset in range(start, start + length, ADVISED_BYTES):
                size = min(ADVISED_BYTES, start + length - offset)
                os.posix_fadvise(self._data, offset, size, os.POSIX_FADV_WILLNEED)

    def windows(self, first: int, count: int) -> dict[str, NDArray[Any]] | None:
        """Consecutive slots of every column as private arrays; None if the system has no such windows."""
        if self.is_short():
            return None
        found = {}
        for name, spec in self.layout.arrays(self.layout.height, self.layout.width).items():
            memory = private_window(self._data, self._slot(name, first), spec.nbytes * count)
            if memory is None:
                return None
            found[name] = memory.view(spec.dtype).reshape(count, *spec.shape)
        return found

    def write(self, index: int, record: Record, content: bytes, annotation: bytes, signature: Signature) -> Row:
        """Store a sample, its row last; OSError if it cannot be written."""
        if self.is_short():
            # Writing would make it long again, with zeros for the pages that were cut off.
            raise TruncatedStoreError(f"{self.folder}: {CUT_SHORT}")
        size_hw, parts, before = record.size_hw, list(record.parts()), self.row(index)
        fits = self.layout.has_slots and size_hw == (self.layout.height, self.layout.width)
        fits = fits and len(record.metadata) <= METADATA_SLOT_BYTES
        # The slot may be in use: what was made of another file or annotation stays as it is.
        if fits and (before is None or (before.content, before.annotation) == (content, annotation)):
            offset, starts = -1, [self._slot(name, index) for name in (*record.arrays, "metadata")]
        else:
            offset = self._allocate(sum(part.nbytes for part in parts))
            starts = (offset + np.cumsum([0, *(part.nbytes for part in parts[:-1])])).tolist()
        for part, start in zip(parts, starts, strict=True):
            _write_all(self._data, part, start)
        self._bound_dirty(sum(part.nbytes for part in parts))
        page_bytes = 0 if self.layout.has_slots else len(parts[0])
        lengths = page_bytes, len(record.metadata)
        row = Row(*size_hw, *lengths, offset, content, annotation, record.checksum(), signature)
        self.write_row(index, row)
        return row

    def _bound_dirty(self, written: int) -> None:
        """Wait for the disk before what it has to catch up with takes a quarter of the memory.

        The system does that by itself for the machine, but not within every cgroup.
        """
        self._dirty += written
        if self._dirty >= self._max_dirty:
            if self._max_dirty:
                os.fdatasync(self._data)
                self._dirty = 0
            self._max_dirty = max(MIN_DIRTY_BYTES, free_memory() // 4)

    def write_row(self, index: int, row: Row) -> None:
        """Write or replace the row of a sample whose data is written."""
        os.pwrite(self._rows, row.pack(), (index + 1) * ROW_BYTES)

    def forget(self, index: int) -> None:
        """Empty the row of a damaged sample, so that it is made again; not for others, because its slot is reused."""
        os.pwrite(self._rows, bytes(ROW_BYTES), (index + 1) * ROW_BYTES)

    def claim(self, index: int) -> AbstractContextManager[None]:
        """Be the only one to make a sample; claims older than 60 s are ignored."""
        return self._claims.claim(index)

    def count(self, **events: int) -> dict[str, int]:
        """Add to the hits, misses and invalid samples of all runs, and return the sums."""
        # Whoever only asks waits for nobody.
        with self._claims.whole_file() if any(events.values()) else nullcontext():
            before = _COUNTS.unpack(os.pread(self._rows, _COUNTS.size, 0).ljust(_COUNTS.size, b"\0"))
            sums = {name: old + events.get(name, 0) for name, old in zip(EVENTS, before, strict=True)}
            if self.writable and any(events.values()):
                os.pwrite(self._rows, _COUNTS.pack(*sums.values()), 0)
        return sums

    def _allocate(self, size: int) -> int:
        """Offset of new space at the end of the data; what a killed writer allocated is lost until the cache goes."""
        with self._claims.whole_file():
            length = self.data_bytes
            # Space that was cut off is not given away again: rows of other pages still point to it.
            if length < self._allocated_bytes():
                raise TruncatedStoreError(f"{self.folder}: {CUT_SHORT}")
            # Arrays in place of those of a slot begin where a map may; dense ones are copied anyway.
            offset = align(length) if self.layout.has_slots else align(length, CACHE_LINE_BYTES)
            os.ftruncate(self._data, offset + size)
            os.pwrite(self._rows, _LENGTH.pack(offset + size), _COUNTS.size)
            self._longest = max(self._longest, offset + size)
        return offset

    def _allocated_bytes(self) -> int:
        """How long the data was made at last, by any process."""
        (length,) = _LENGTH.unpack(os.pread(self._rows, _LENGTH.size, _COUNTS.size).ljust(_LENGTH.size, b"\0"))
        return int(length)

    def _slot(self, name: str, index: int) -> int:
        start, slot = self.columns[name]
        return start + slot * index

    def _mapped_to(self, end: int) -> NDArray[np.uint8] | None:
        """The map, made again if the file has grown beyond it; None if the file does not reach this offset."""
        mapped = self.mapped
        if len(mapped) < end <= self.data_bytes:
            mapped = self.mapped = map_file(self._data, reads_around=not self._is_large)
        # The length is asked for last, and the map is not that of another thread: both may have grown meanwhile.
        return mapped if end <= len(mapped) <= self.data_bytes else None


def _write_all(descriptor: int, data: NDArray[np.uint8], offset: int) -> None:
    """Write through the file, not the map: there a full disk would be a crash instead of an error."""
    rest = data.data
    while len(rest):
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
