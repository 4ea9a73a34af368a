"""What is known about pages before their files are read, one row per page, decoded when it is asked for."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ocr.geometry.polygons import Polygons
from ocr.pipeline.fingerprint import feed
from ocr.row_table import RowSequence, RowTable, RowTableWriter

_LENGTHS = struct.Struct("<IIIIII")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about a page before its file is read."""

    filename: str
    polygons: Polygons
    claimed_size: tuple[int, int] | None = None


class PageRows(RowSequence[Entry]):
    """The pages of a split."""

    def __init__(self, table: RowTable) -> None:
        self.table = table

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> PageRows:
        """Some pages, in memory."""
        writer = PageRowsWriter()
        for entry in entries:
            writer.append(entry)
        return cls(writer.table({}))

    def __len__(self) -> int:
        return len(self.table)

    def _at(self, position: int) -> Entry:
        return _from_row(self.table.row(position))

    @property
    def names(self) -> Names:
        """The file names alone."""
        return Names(self.table)

    @property
    def names_digest(self) -> str:
        """Digest of all file names, in their order."""
        return str(self.table.about["names"])

    def differences(self, other: PageRows) -> list[int]:
        """The numbers of the pages of which as many others say something else."""
        return self.table.differences(other.table)

    def updated(self, new: PageRows) -> tuple[PageRows, int, int]:
        """These pages, each with what `new` says about it; and how many are only in `new`, or only here."""
        known = {name: number for number, name in enumerate(new.names)}
        found = [known.pop(name, -1) for name in self.names]
        rows = PageRows.of(self[at] if number < 0 else new[number] for at, number in enumerate(found))
        return rows, len(known), found.count(-1)


class Names(RowSequence[str]):
    """The file names of pages."""

    def __init__(self, table: RowTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def _at(self, position: int) -> str:
        row = self._table.row(position)
        end = _LENGTHS.size + _LENGTHS.unpack_from(row)[0]
        return row[_LENGTHS.size : end].decode(errors="surrogatepass")


class PageRowsWriter:
    """Collects pages and the digest of their names."""

    def __init__(self) -> None:
        self._writer = RowTableWriter()
        self._names = hashlib.blake2b(digest_size=16)

    def __len__(self) -> int:
        return len(self._writer)

    def append(self, entry: Entry) -> None:
        """Add a page."""
        self._writer.append(_to_row(entry))
        feed(self._names, entry.filename)

    def table(self, about: dict[str, Any]) -> RowTable:
        """The pages, without a file that lasts."""
        return self._writer.table(about | {"names": self._names.hexdigest()})

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """The pages in a file that other processes map too; OutputError if it cannot be written."""
        return self._writer.save(path, about | {"names": self._names.hexdigest()})


def _to_row(entry: Entry) -> bytes:
    polygons, (width, height) = entry.polygons, entry.claimed_size or (0, 0)
    # Half of a surrogate pair, in a name or a transcription, is not valid UTF-8 and still comes back as it was.
    name = entry.filename.encode(errors="surrogatepass")
    has_texts = any(text is not None for text in polygons.texts)
    texts = json.dumps(polygons.texts, ensure_ascii=False).encode(errors="surrogatepass") if has_texts else b""
    lengths = _LENGTHS.pack(len(name), len(polygons.vertices), len(polygons), len(texts), width, height)
    arrays = (polygons.vertices, polygons.offsets, polygons.ignore)
    return b"".join([lengths, name, *(array.tobytes() for array in arrays), texts])


def _from_row(row: bytes) -> Entry:
    name, vertices, words, texts, width, height = _LENGTHS.unpack_from(row)
    ends = accumulate((_LENGTHS.size, name, vertices * 8, (words + 1) * 4, words, texts))
    named, points, offsets, ignore, written = (row[start:end] for start, end in pairwise(ends))
    polygons = Polygons(
        np.frombuffer(points, np.float32).reshape(-1, 2),
        np.frombuffer(offsets, np.int32),
        np.frombuffer(ignore, np.bool_),
        tuple(json.loads(written.decode(errors="surrogatepass"))) if texts else (),
    )
    return Entry(named.decode(errors="surrogatepass"), polygons, (width, height) if width else None)
