"""Rows of bytes by number: in memory while they are few, else in one mapped file that all processes of a machine share.

    header         magic, length and checksum of the description
    description    JSON: what the rows are, how many, the columns
    places         two numbers per row: where it ends, and its checksum
    columns        one number per row, little-endian; each column is aligned
    rows           the bytes of all rows, one after the other: a row is in one place of the file, not one per field

Nothing is read but the description until a row is asked for; nothing in the file is executed. Columns are mapped;
places and rows are read, because a map makes 64 kB resident around each row that is touched.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, TypeVar, overload

import numpy as np
import xxhash
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.errors import DataError
from ocr.mapped_file import map_file

T = TypeVar("T")
MAGIC = b"GFROWS\x00\x02"
IN_MEMORY_BYTES = 64 << 20
"""Rows that are being collected go to a temporary file beyond this."""
_HEADER = struct.Struct("<8sQQ")
_PLACE = struct.Struct("<QQ")
_ALIGNMENT = 64


class DamagedTableError(DataError):
    """The file is not a table, or not a whole one."""


class RowSequence(Sequence[T]):
    """Behaves like a list, of which only what is asked for is made."""

    @abstractmethod
    def _at(self, position: int) -> T:
        """The value at a position from 0 on."""

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        positions = range(len(self))[index]
        return self._at(positions) if isinstance(positions, int) else [self._at(position) for position in positions]

    def __iter__(self) -> Iterator[T]:
        return (self._at(position) for position in range(len(self)))


class RowTable:
    """Rows of bytes, and columns with one number per row; `about` is what the writer said about them."""

    def __init__(
        self,
        about: dict[str, Any],
        columns: Mapping[str, NDArray[Any]],
        read: Callable[[int, int], bytes],
        bounds: tuple[int, int, int],
        path: Path | None = None,
    ) -> None:
        """`read` gives bytes by offset and length; `bounds` are the offsets of places and rows, and the end of rows."""
        self.about, self.path = about, path
        self.columns = {name: column for name, column in columns.items() if name != "places"}
        self._all_places, self._read = columns["places"], read
        self._places_start, self._rows_start, self._rows_end = bounds

    def __len__(self) -> int:
        return len(self._all_places) // 2

    def row(self, index: int) -> bytes:
        """The bytes of a row; DataError if they are not those that were written."""
        first = max(0, index - 1)
        places = self._read(self._places_start + first * _PLACE.size, (index + 1 - first) * _PLACE.size)
        if len(places) == (index + 1 - first) * _PLACE.size:
            end, checksum = _PLACE.unpack_from(places, len(places) - _PLACE.size)
            start = _PLACE.unpack_from(places)[0] if index else 0
            if start <= end <= self._rows_end - self._rows_start:
                row = self._read(self._rows_start + start, end - start)
                if len(row) == end - start and xxhash.xxh3_64_intdigest(row) == checksum:
                    return row
        problem = f"{self.path}: row {index} is damaged. Remove the file to rebuild it"
        raise DataError(problem, value=index, path=self.path)

    def differences(self, other: RowTable) -> list[int]:
        """The rows that are not the same in a table of as many rows, by their checksums."""
        different: list[int] = np.flatnonzero(self._all_places[1::2] != other._all_places[1::2]).tolist()
        return different

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the same file, instead of getting a copy of it.
        return {"path": self.path, "about": self.about} if self.path is not None else vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.path is not None:
            try:
                opened = open_table(self.path)
            except (OSError, DamagedTableError) as error:
                problem = f"{self.path}: cannot be opened ({error}). Start again to rebuild it"
                raise DataError(problem, path=self.path) from error
            if opened.about != state["about"]:
                problem = f"{self.path}: was replaced while it was in use. Start again"
                raise DataError(problem, value=opened.about, path=self.path)
            vars(self).update(vars(opened))


def open_table(path: Path) -> RowTable:
    """The table in a file; DamagedTableError if it is not a whole one, OSError if it cannot be read."""
    file = _File(path)
    size = os.fstat(file.stream.fileno()).st_size
    header = file(0, _HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(MAGIC):
        raise DamagedTableError(f"{path}: not a table of this format", path=path)
    _, length, checksum = _HEADER.unpack(header)
    described = file(_HEADER.size, min(length, size))
    if xxhash.xxh3_64_intdigest(described) != checksum:
        raise DamagedTableError(f"{path}: its description is damaged", path=path)
    try:
        description = json.loads(described)
    except (ValueError, RecursionError) as error:
        raise DamagedTableError(f"{path}: its description is not JSON ({error})", path=path) from error
    count, dtypes = description["rows"], {name: np.dtype(kind) for name, kind in description["columns"]}
    if any(dtype.kind not in "iu" for dtype in dtypes.values()):
        raise DamagedTableError(f"{path}: a column is not of integers", path=path)
    starts, end = _layout(_HEADER.size + length, count, dtypes)
    if size != end + description["bytes"]:
        problem = f"{path}: {size} bytes instead of {end + description['bytes']}"
        raise DamagedTableError(problem, value=size, path=path)
    mapped = map_file(file.stream.fileno())
    columns = {
        name: mapped[start : start + count * _width(name, dtypes)].view(dtypes.get(name, np.dtype("<u8")))
        for name, start in starts.items()
    }
    return RowTable(description["about"], columns, file, (starts["places"], end, size), path)


class _File:
    """Bytes of an open file; several threads can read at once."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("rb")

    def __call__(self, start: int, length: int) -> bytes:
        return os.pread(self.stream.fileno(), length, start)


class _Memory:
    """Bytes in memory: the places, then the rows."""

    def __init__(self, places: NDArray[np.uint64], rows: NDArray[np.uint8]) -> None:
        self.places, self.rows = places.view(np.uint8), rows

    def __call__(self, start: int, length: int) -> bytes:
        data, start = (self.rows, start - len(self.places)) if start >= len(self.places) else (self.places, start)
        return data[start : start + length].tobytes()


class RowTableWriter:
    """Collects rows; many of them wait in a temporary file."""

    def __init__(self, columns: Mapping[str, str] | None = None) -> None:
        """`columns` maps names to array type codes ("i": int32, "q": int64)."""
        self._places = array("Q")
        self._columns = {name: array(kind) for name, kind in (columns or {}).items()}
        self._rows = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 - read by `table` and `save`
        self._written = 0

    def __len__(self) -> int:
        return len(self._places) // 2

    def append(self, row: bytes, *numbers: int) -> None:
        """Add a row, with its number in each column."""
        self._rows.write(row)
        self._written += len(row)
        self._places.extend((self._written, xxhash.xxh3_64_intdigest(row)))
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
        arrays = self._arrays()
        start = arrays["places"].nbytes
        return RowTable(about, arrays, _Memory(arrays["places"], data), (0, start, start + self._written))

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """Write the rows to a file, atomically, and open it; OutputError if it cannot be written."""
        arrays = self._arrays()
        # The digest tells apart two tables of the same description.
        about = about | {"rows_digest": xxhash.xxh3_64_hexdigest(arrays["places"].data)}
        dtypes = {name: column.dtype for name, column in arrays.items() if name != "places"}
        columns = [[name, dtype.str] for name, dtype in dtypes.items()]
        description = {"about": about, "rows": len(self), "bytes": self._written, "columns": columns}
        described = json.dumps(description).encode("ascii")
        starts, end = _layout(_HEADER.size + len(described), len(self), dtypes)
        with replacing(path) as stream:
            stream.write(_HEADER.pack(MAGIC, len(described), xxhash.xxh3_64_intdigest(described)) + described)
            for name, start in starts.items():
                stream.write(bytes(start - stream.tell()))
                stream.write(arrays[name].data)
            stream.write(bytes(end - stream.tell()))
            self._rows.seek(0)
            shutil.copyfileobj(self._rows, stream, 1 << 20)
        return open_table(path)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"places": self._places, **self._columns}
        return {name: np.frombuffer(column, dtype=column.typecode) for name, column in arrays.items()}


def _layout(start: int, count: int, dtypes: Mapping[str, np.dtype[Any]]) -> tuple[dict[str, int], int]:
    """Where places and columns start, and where they end."""
    starts = {}
    for name in ("places", *dtypes):
        starts[name] = start = -(-start // _ALIGNMENT) * _ALIGNMENT
        start += count * _width(name, dtypes)
    return starts, -(-start // _ALIGNMENT) * _ALIGNMENT


def _width(name: str, dtypes: Mapping[str, np.dtype[Any]]) -> int:
    return _PLACE.size if name == "places" else dtypes[name].itemsize
