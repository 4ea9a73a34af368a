"""The format of a cache: what is stored per sample, at which offsets, and the row that describes it."""

from __future__ import annotations

import mmap
import struct
import zlib
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ocr.pipeline.metadata import MAP_DTYPES
from ocr.pipeline.record import Record
from ocr.pipeline.signature import Signature

FORMAT = 2
ROW_BYTES = 128
METADATA_SLOT_BYTES = 64 << 10
"""The column of metadata is sparse: a page with 50 words takes one or two disk blocks of its slot."""
_ROW = struct.Struct("<IIIIIq16s16sqqqqQ")
_CRC = struct.Struct("<I")


class Row(NamedTuple):
    """One stored sample: the file and annotation it was made of, its offset and its checksum."""

    height: int
    width: int
    page_bytes: int
    """Length of a dense page; 0 if the length follows from its size."""
    metadata_bytes: int
    offset: int
    """-1 if it is in the slots of its columns; otherwise where all its arrays are, one after the other."""
    content: bytes
    annotation: bytes
    """Digest of the annotation and the file's name."""
    checksum: int
    signature: Signature

    def pack(self) -> bytes:
        """The row as it is in the file, with its own checksum."""
        data = _ROW.pack(FORMAT, *self[:-1], *self.signature)
        return data + _CRC.pack(zlib.crc32(data))

    @classmethod
    def unpack(cls, data: bytes) -> Row | None:
        """The row in these bytes; None if it is empty, torn or damaged."""
        if len(data) < _ROW.size + _CRC.size or data[:4] != _CRC.pack(FORMAT):
            return None
        if _CRC.unpack_from(data, _ROW.size) != (zlib.crc32(data[: _ROW.size]),):
            return None
        _, height, width, page_bytes, metadata_bytes, offset, content, annotation, checksum, *rest = _ROW.unpack_from(
            data
        )
        signature = Signature(*rest)
        return cls(height, width, page_bytes, metadata_bytes, offset, content, annotation, checksum, signature)


class ArraySpec(NamedTuple):
    """Type and shape of a stored array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """How many samples there are, and what is stored of each."""

    count: int
    height: int
    width: int
    dtype: str | None
    """Of the page: uint8, float32, or "dense", where lengths differ; None if only maps are stored."""
    maps: bool

    @classmethod
    def of(cls, count: int, record: Record) -> Layout:
        """The layout of a cache whose first sample is `record`."""
        image = record.arrays.get("image")
        dtype = None if image is None else "dense" if image.ndim == 1 else str(image.dtype)
        return cls(count, *record.size_hw, dtype, "prob_map" in record.arrays)

    @classmethod
    def from_json(cls, fields: Any) -> Layout:
        """The layout that about.json describes; ValueError or TypeError if it describes none."""
        layout = cls(**fields)
        for number in (layout.count, layout.height, layout.width):
            if type(number) is not int or number < 1:
                raise ValueError(f"layout: {number!r} must be an integer >= 1")
        # Only numbers: an array of objects would be pointers.
        if layout.dtype not in (None, "dense") and (
            type(layout.dtype) is not str or np.dtype(layout.dtype).kind not in "biuf"
        ):
            raise ValueError(f"layout: dtype {layout.dtype!r} is not one of pages")
        if type(layout.maps) is not bool:
            raise ValueError(f"layout: maps {layout.maps!r} must be true or false")
        return layout

    def keeps_like(self, other: Layout) -> bool:
        """Whether both store the same arrays of a page, of whatever size."""
        return (self.dtype, self.maps) == (other.dtype, other.maps)

    @property
    def has_slots(self) -> bool:
        """Whether samples of the first one's size are in slots of columns; those of other lengths follow each other."""
        return self.dtype != "dense"

    def arrays(self, height: int, width: int, page_bytes: int = 0) -> dict[str, ArraySpec]:
        """What is stored of a page of this size."""
        stored = {}
        if self.dtype == "dense":
            stored["image"] = ArraySpec(np.dtype(np.uint8), (page_bytes,))
        elif self.dtype is not None:
            shape = (height, width, 3) if self.dtype == "uint8" else (3, height, width)
            stored["image"] = ArraySpec(np.dtype(self.dtype), shape)
        if self.maps:
            stored |= {name: ArraySpec(np.dtype(kind), (height, width)) for name, kind in MAP_DTYPES.items()}
        return stored

    def columns(self) -> dict[str, tuple[int, int]]:
        """Start of each column, and bytes per slot."""
        if not self.has_slots:
            return {}
        slots = {name: array.nbytes for name, array in self.arrays(self.height, self.width).items()}
        start, columns = 0, {}
        for name, slot in (slots | {"metadata": METADATA_SLOT_BYTES}).items():
            columns[name] = start, slot
            start = align(start + slot * self.count)
        return columns

    def end(self) -> int:
        """Offset at which the columns end."""
        start, slot = self.columns().get("metadata", (0, 0))
        # An empty file cannot be mapped.
        return max(mmap.PAGESIZE, align(start + slot * self.count))


def align(offset: int, unit: int = mmap.PAGESIZE) -> int:
    """The next multiple of `unit`: by default an offset at which a memory map may begin."""
    return -(-offset // unit) * unit
