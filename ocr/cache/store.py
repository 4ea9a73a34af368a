"""The files of one cache: a row a sample, and a sparse file of columns that all readers share as one memory map.

    about.json   whose pages these are, and the layout; written once
    rows         counts of all runs, then for every sample whether it is there, where, of what, and its checksum
    data         a column an array, a slot a sample; what does not fit a slot, or replaces one, lies behind them

Data is written first and its row last: a writer killed at any point leaves an empty row, and what a crash of the
machine tears apart fails its checksum. A slot that somebody may be reading is never overwritten with other content.
Rows are claimed by locks that end with their process.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.cache.row_format import FORMAT, METADATA_SLOT_BYTES, ROW_BYTES, Layout, Row, align
from ocr.mapped_file import map_file, private_window
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.record import Record
from ocr.pipeline.source import Signature

CLAIM_SECONDS = 60.0
EVENTS = ("hits", "misses", "invalid")
_COUNTS = struct.Struct("<qqq")


class DamagedStoreError(Exception):
    """The files are not what they should be and can only be made anew."""


class Store:
    """An open cache of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows = self._data = -1
        self.about, self.layout = read_about(folder)
        self.columns = self.layout.columns()
        self.writable = self._open()
        rows_bytes = os.fstat(self._rows).st_size
        if rows_bytes < (self.layout.count + 1) * ROW_BYTES or self.data_bytes < self.layout.end():
            raise DamagedStoreError(f"{folder}: a file of it was cut short")
        self._mapped = map_file(self._data)
        self._lock = threading.Condition()
        self._claimed: set[int] = set()

    @classmethod
    def create(cls, folder: Path, layout: Layout, about: dict[str, Any]) -> Store:
        """Make the files aside and put them into place at once; whoever comes second uses those of the first."""
        aside = partial_folder(folder)
        aside.mkdir(parents=True)
        try:
            about = {"format": FORMAT, "layout": asdict(layout)} | about
            about["digest"] = _about_digest(about)
            (aside / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
            for name, length in (("rows", (layout.count + 1) * ROW_BYTES), ("data", layout.end())):
                with (aside / name).open("wb") as stream:
                    stream.truncate(length)
            with suppress(FileExistsError, OSError):
                aside.rename(folder)
        finally:
            unlink_files(aside)
        return cls(folder)

    def _open(self) -> bool:
        """Whether the files may be written to."""
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

    def close(self) -> None:
        """Give the files back; views that are in use stay valid."""
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
        """What the data takes on disk, whoever wrote it."""
        return os.fstat(self._data).st_blocks * 512

    def row(self, index: int) -> Row | None:
        """What is known of a sample; None where it is not there, or the row itself is damaged."""
        return Row.unpack(self.row_bytes(index))

    def row_bytes(self, index: int) -> bytes:
        """The row as it lies in the file: as long as it stays the same, so does the sample."""
        return os.pread(self._rows, ROW_BYTES, (index + 1) * ROW_BYTES)

    def ready(self) -> NDArray[np.int64]:
        """Samples that have a row."""
        rows = np.frombuffer(os.pread(self._rows, self.layout.count * ROW_BYTES, ROW_BYTES), dtype=np.uint8)
        return np.flatnonzero(rows.reshape(-1, ROW_BYTES)[:, :4].any(axis=1))

    def read(self, index: int, row: Row) -> Record | None:
        """Read-only views of a sample; None where its row cannot be right."""
        kept = self.layout.arrays(row.height, row.width)
        if row.offset < 0:
            if (row.height, row.width) != (self.layout.height, self.layout.width):
                return None
            starts = [self._slot(name, index) for name in (*kept, "metadata")]
        else:
            sizes = [array.nbytes for array in kept.values()]
            starts = [row.offset + sum(sizes[:n]) for n in range(len(sizes) + 1)]
        if not self._covers(starts[-1] + row.metadata_bytes):
            return None
        arrays = {
            name: self._mapped[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            for (name, array), start in zip(kept.items(), starts, strict=False)
        }
        return Record(arrays, self._mapped[starts[-1] : starts[-1] + row.metadata_bytes].tobytes())

    def metadata(self, index: int, row: Row) -> bytes:
        """The metadata of a sample in its slot."""
        start = self._slot("metadata", index)
        return self._mapped[start : start + row.metadata_bytes].tobytes()

    def windows(self, first: int, count: int) -> dict[str, NDArray[Any]] | None:
        """Neighbouring slots of every column as arrays of their own; None where the system has no such windows."""
        found = {}
        for name, array in self.layout.arrays(self.layout.height, self.layout.width).items():
            memory = private_window(self._data, self._slot(name, first), array.nbytes * count)
            if memory is None:
                return None
            found[name] = memory.view(array.dtype).reshape(count, *array.shape)
        return found

    def write(self, index: int, record: Record, content: bytes, annotation: bytes, signature: Signature) -> Row:
        """Store a sample, its row last; OSError where the disk does not take it."""
        size_hw, parts, before = record.size_hw, list(record.parts()), self.row(index)
        fits = size_hw == (self.layout.height, self.layout.width) and len(record.metadata) <= METADATA_SLOT_BYTES
        # Somebody may be reading the slot: what was made of another file or annotation stays as it is.
        if fits and (before is None or (before.content, before.annotation) == (content, annotation)):
            place, starts = -1, [self._slot(name, index) for name in (*record.arrays, "metadata")]
        else:
            place = self._allocate(sum(part.nbytes for part in parts))
            starts = (place + np.cumsum([0, *(part.nbytes for part in parts[:-1])])).tolist()
        for part, start in zip(parts, starts, strict=True):
            _write_all(self._data, part, start)
        row = Row(*size_hw, len(record.metadata), place, content, annotation, record.checksum(), signature)
        self.write_row(index, row)
        return row

    def write_row(self, index: int, row: Row) -> None:
        """Make a sample known, or known anew."""
        os.pwrite(self._rows, row.pack(), (index + 1) * ROW_BYTES)

    def forget(self, index: int) -> None:
        """Make a sample unknown, so that it is made anew; for damaged ones only, because their slot is used again."""
        os.pwrite(self._rows, bytes(ROW_BYTES), (index + 1) * ROW_BYTES)

    @contextmanager
    def claim(self, index: int) -> Iterator[None]:
        """Be the only one to make a sample; who holds a claim for longer than a minute is stuck, and not waited for."""
        deadline = time.monotonic() + CLAIM_SECONDS
        # Locks of the system are between processes; those of threads are our own.
        with self._lock:
            while index in self._claimed and time.monotonic() < deadline:
                self._lock.wait(1.0)
            self._claimed.add(index)
        try:
            while not self._lock_row(index) and time.monotonic() < deadline:
                time.sleep(0.002)
            yield
        finally:
            with self._lock:
                if self.writable:
                    fcntl.lockf(self._rows, fcntl.LOCK_UN, 1, (index + 1) * ROW_BYTES)
                self._claimed.discard(index)
                self._lock.notify_all()

    def _lock_row(self, index: int) -> bool:
        if not self.writable:
            return True
        try:
            fcntl.lockf(self._rows, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, (index + 1) * ROW_BYTES)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            pass  # A file system without locks: two may make the same sample, and both make it right.
        return True

    def count(self, **events: int) -> dict[str, int]:
        """Add to the hits, misses and invalid ones of all runs, and tell their sums."""
        with self._locked_head():
            before = _COUNTS.unpack(os.pread(self._rows, _COUNTS.size, 0))
            sums = {name: old + events.get(name, 0) for name, old in zip(EVENTS, before, strict=True)}
            if self.writable and any(events.values()):
                os.pwrite(self._rows, _COUNTS.pack(*sums.values()), 0)
        return sums

    def _allocate(self, size: int) -> int:
        """Room at the end of the data; what a killed writer was given stays empty until the cache is cleared."""
        with self._locked_head():
            place = align(self.data_bytes)
            os.ftruncate(self._data, place + size)
        return place

    @contextmanager
    def _locked_head(self) -> Iterator[None]:
        # Not the kind of lock that claims are: those do not keep apart two stores of one process.
        with self._lock:
            if self.writable:
                fcntl.flock(self._rows, fcntl.LOCK_EX)
            try:
                yield
            finally:
                if self.writable:
                    fcntl.flock(self._rows, fcntl.LOCK_UN)

    def _slot(self, name: str, index: int) -> int:
        start, slot = self.columns[name]
        return start + slot * index

    def _covers(self, end: int) -> bool:
        """Whether the map reaches so far, after mapping what was added since."""
        if len(self._mapped) < end <= self.data_bytes:
            self._mapped = map_file(self._data)
        return end <= len(self._mapped)


def read_about(folder: Path) -> tuple[dict[str, Any], Layout]:
    """The description of a cache and its layout."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise DamagedStoreError(f"{folder}: format {about['format']}, not {FORMAT}")
        if about.pop("digest") != _about_digest(about):
            raise DamagedStoreError(f"{folder}/about.json was changed")
        return about, Layout(**about["layout"])
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, KeyError, TypeError) as error:
        # Other errors may be over in a minute, such as too many open files: no reason to make everything anew.
        raise DamagedStoreError(f"{folder}: {error}") from error


def _about_digest(about: dict[str, Any]) -> str:
    return digest(json.dumps(about, sort_keys=True))


def partial_folder(folder: Path) -> Path:
    """Where a cache is made or taken apart, out of sight; named so that `remove_partial_folders` knows whose it is."""
    return folder.with_name(f".{folder.name}.{os.getpid()}-{threading.get_ident()}.partial")


def remove_store(folder: Path) -> None:
    """Remove a cache at once; processes that use it keep what they have mapped."""
    aside = partial_folder(folder)
    folder.rename(aside)
    unlink_files(aside)


def unlink_files(folder: Path) -> None:
    """Remove the files of a cache and its folder, as far as they are there."""
    for name in ("about.json", "rows", "data"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _write_all(descriptor: int, data: NDArray[np.uint8], offset: int) -> None:
    """Through the file and not through the map, where a full disk would be a crash instead of an error."""
    rest = data.data
    while len(rest):
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
