"""What a cache keeps of each sample, where it lies in the file, and what its row tells of it."""

from __future__ import annotations

import mmap
import struct
import zlib
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ocr.pipeline.sample import Maps
from ocr.pipeline.source import Signature

FORMAT = 1
ROW_BYTES = 128
METADATA_SLOT_BYTES = 64 << 10
"""The column of metadata is sparse: a page with 50 words takes one or two blocks of its slot."""
_ROW = struct.Struct("<IIIIq16s16sqqqqQ")
_CRC = struct.Struct("<I")


class Row(NamedTuple):
    """One finished sample: of which file and annotation it was made, and where it lies."""

    height: int
    width: int
    metadata_bytes: int
    offset: int
    """-1: in the slots of its columns; otherwise the offset of all its arrays, one after the other."""
    content: bytes
    annotation: bytes
    checksum: int
    signature: Signature

    def pack(self) -> bytes:
        """As in the file, with a checksum of its own."""
        data = _ROW.pack(FORMAT, *self[:-1], *self.signature)
        return data + _CRC.pack(zlib.crc32(data))

    @classmethod
    def unpack(cls, data: bytes) -> Row | None:
        """None where the row is empty, torn or damaged."""
        if len(data) < _ROW.size + _CRC.size or data[:4] != _CRC.pack(FORMAT):
            return None
        if _CRC.unpack_from(data, _ROW.size) != (zlib.crc32(data[: _ROW.size]),):
            return None
        _, height, width, metadata_bytes, offset, content, annotation, checksum, *signature = _ROW.unpack_from(data)
        return cls(height, width, metadata_bytes, offset, content, annotation, checksum, Signature(*signature))


class Array(NamedTuple):
    """Type and shape of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """How many samples there are, and what is kept of each."""

    count: int
    height: int
    width: int
    dtype: str | None
    """Of the page; None where only maps are kept."""
    maps: bool

    def arrays(self, height: int, width: int) -> dict[str, Array]:
        """What is kept of a page of this size."""
        kept = {}
        if self.dtype is not None:
            shape = (height, width, 3) if self.dtype == "uint8" else (3, height, width)
            kept["image"] = Array(np.dtype(self.dtype), shape)
        if self.maps:
            kinds = (np.float32, np.float32, np.bool_, np.bool_)
            kept |= {
                name: Array(np.dtype(kind), (height, width)) for name, kind in zip(Maps._fields, kinds, strict=True)
            }
        return kept

    def columns(self) -> dict[str, tuple[int, int]]:
        """Start of each column, and bytes of a slot of it."""
        slots = {name: array.nbytes for name, array in self.arrays(self.height, self.width).items()}
        start, columns = 0, {}
        for name, slot in (slots | {"metadata": METADATA_SLOT_BYTES}).items():
            columns[name] = start, slot
            start = align(start + slot * self.count)
        return columns

    def end(self) -> int:
        """Where the columns end."""
        start, slot = self.columns()["metadata"]
        return align(start + slot * self.count)


def align(offset: int) -> int:
    """The next offset at which a map may begin."""
    return -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
