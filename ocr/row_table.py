"""Rows of bytes by number: in memory while they are few, else in one mapped file that all processes of a machine share.

    header    magic, length and checksum of the description
    description    JSON: what the rows are, how many, the columns
    ends, checksums, further columns    one number per row, little-endian, each column aligned
    rows    the bytes of all rows, one after the other: reading a row takes one place of the file, not one per field

Nothing is read but the description until a row is asked for; nothing in the file is executed.
"""

from __future__ import annotations

import json
import shutil
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.errors import DataError
from ocr.mapped_file import map_file

MAGIC = b"GFROWS\x00\x01"
IN_MEMORY_BYTES = 64 << 20
"""Rows that are being collected go to a temporary file beyond this."""
_HEADER = struct.Struct("<8sQQ")
_ALIGNMENT = 64
_OWN = {"ends": np.dtype("<i8"), "checksums": np.dtype("<u8")}


class DamagedTableError(Exception):
    """The file is not a table, or not a whole one."""


class RowTable:
    """Rows of bytes, and columns with one number per row; `about` is what the writer said about them."""

    def __init__(
        self,
        about: dict[str, Any],
        columns: Mapping[str, NDArray[Any]],
        data: NDArray[np.uint8],
        path: Path | None = None,
    ) -> None:
        self.about, self.path = about, path
        self.columns = {name: column for name, column in columns.items() if name not in _OWN}
        self._ends, self._checksums, self._data = columns["ends"], columns["checksums"], data

    def __len__(self) -> int:
        return len(self._ends)

    def row(self, index: int) -> bytes:
        """The bytes of a row; DataError if they are not those that were written."""
        start = int(self._ends[index - 1]) if index else 0
        end = int(self._ends[index])
        if 0 <= start <= end <= len(self._data):
            row = self._data[start:end].tobytes()
            if xxhash.xxh3_64_intdigest(row) == self._checksums[index]:
                return row
        raise DataError(f"{self.path}: row {index} is damaged. Remove the file: it is written again")

    def differences(self, other: RowTable) -> list[int]:
        """The rows that are not the same in a table of as many rows, by their checksums."""
        different: list[int] = np.flatnonzero(self._checksums != other._checksums).tolist()
        return different

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the same file, instead of getting a copy of it.
        return {"path": self.path, "about": self.about} if self.path is not None else vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.path is not None:
            try:
                opened = open_table(self.path)
            except (OSError, DamagedTableError) as error:
                raise DataError(f"{self.path}: cannot be opened ({error}). Start again: it is written again") from error
            if opened.about != state["about"]:
                raise DataError(f"{self.path}: was replaced while it was in use. Start again")
            vars(self).update(vars(opened))


def open_table(path: Path) -> RowTable:
    """The table in a file; DamagedTableError if it is not a whole one, OSError if it cannot be read."""
    with path.open("rb") as stream:
        magic, length, checksum = _HEADER.unpack(_read(stream, _HEADER.size, path))
        if magic != MAGIC:
            raise DamagedTableError(f"{path}: not a table of this format")
        size = path.stat().st_size
        described = _read(stream, min(length, size), path)
        if xxhash.xxh3_64_intdigest(described) != checksum:
            raise DamagedTableError(f"{path}: its description is damaged")
        description = json.loads(described)
        count, dtypes = description["rows"], _OWN | {name: np.dtype(kind) for name, kind in description["columns"]}
        if any(dtype.kind not in "iu" for dtype in dtypes.values()):
            raise DamagedTableError(f"{path}: a column is not of integers")
        starts, end = _layout(_HEADER.size + length, count, dtypes)
        if size != end + description["bytes"]:
            raise DamagedTableError(f"{path}: {size} bytes instead of {end + description['bytes']}")
        data = map_file(stream.fileno())
    columns = {
        name: data[starts[name] : starts[name] + count * dtype.itemsize].view(dtype) for name, dtype in dtypes.items()
    }
    return RowTable(description["about"], columns, data[end:], path)


class RowTableWriter:
    """Collects rows; many of them wait in a temporary file."""

    def __init__(self, columns: Mapping[str, str] | None = None) -> None:
        """`columns` maps names to array type codes ("i": int32, "q": int64)."""
        self._ends, self._checksums = array("q"), array("Q")
        self._columns = {name: array(kind) for name, kind in (columns or {}).items()}
        self._rows = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 - read by `table` and `save`
        self._written = 0

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, row: bytes, *numbers: int) -> None:
        """Add a row, with its number in each column."""
        self._rows.write(row)
        self._written += len(row)
        self._ends.append(self._written)
        self._checksums.append(xxhash.xxh3_64_intdigest(row))
        for column, number in zip(self._columns.values(), numbers, strict=True):
            column.append(number)

    def table(self, about: dict[str, Any]) -> RowTable:
        """The rows, without a file that lasts."""
        if self._written > IN_MEMORY_BYTES:
            self._rows.flush()
            data = map_file(self._rows.fileno())
        else:
            self._rows.seek(0)
            data = np.frombuffer(self._rows.read(), np.uint8)
        return RowTable(about, self._arrays(), data)

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """Write the rows to a file, atomically, and map it; OutputError if it cannot be written."""
        arrays = self._arrays()
        # The digest tells apart two tables of the same description.
        rows = xxhash.xxh3_64_hexdigest(np.ascontiguousarray(arrays["checksums"]).data)
        columns = [[name, column.dtype.str] for name, column in arrays.items() if name not in _OWN]
        description = {"about": about | {"rows_digest": rows}, "rows": len(self), "bytes": self._written}
        described = json.dumps(description | {"columns": columns}).encode("ascii")
        starts, end = _layout(_HEADER.size + len(described), len(self), {n: a.dtype for n, a in arrays.items()})
        with replacing(path) as stream:
            stream.write(_HEADER.pack(MAGIC, len(described), xxhash.xxh3_64_intdigest(described)) + described)
            for name, column in arrays.items():
                stream.write(bytes(starts[name] - stream.tell()))
                stream.write(column.data)
            stream.write(bytes(end - stream.tell()))
            self._rows.seek(0)
            shutil.copyfileobj(self._rows, stream, 1 << 20)
        return open_table(path)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"ends": self._ends, "checksums": self._checksums, **self._columns}
        return {name: np.frombuffer(column, dtype=column.typecode) for name, column in arrays.items()}


def _layout(start: int, count: int, dtypes: Mapping[str, np.dtype[Any]]) -> tuple[dict[str, int], int]:
    """Where each column starts, and where they end."""
    starts = {}
    for name, dtype in dtypes.items():
        starts[name] = start = -(-start // _ALIGNMENT) * _ALIGNMENT
        start += count * dtype.itemsize
    return starts, -(-start // _ALIGNMENT) * _ALIGNMENT


def _read(stream: IO[bytes], size: int, path: Path) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise DamagedTableError(f"{path}: ends after {len(data)} bytes")
    return data
