"""TIFF: the pages of a file, each as a file that begins with it, so that the decoder of images reads them all."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ocr.errors import ImageError

_SUBFILE_TYPE = 254
_NO_PAGE = 1 | 4
"""Of its bits: a smaller copy of another picture, and a mask."""
_BIG = 43


@dataclass(frozen=True, slots=True)
class _Layout:
    """How numbers are written: in the order of the bytes, and with 64 bits in a BigTIFF."""

    offset: str
    count: str
    entry: str
    first_offset: int
    """Where the header has the place of the first description."""

    @classmethod
    def of(cls, header: bytes) -> _Layout:
        order = "<" if header[:2] == b"II" else ">"
        if struct.unpack_from(order + "H", header, 2)[0] == _BIG:
            return cls(order + "Q", order + "Q", order + "H10xL4x", 8)
        return cls(order + "L", order + "H", order + "H6xL", 4)


def tiff_pages(content: str | bytes, name: str) -> Iterator[int]:
    """Where each page is described, by path or bytes; raises ImageError behind the last one that can be found."""
    try:
        with open(content, "rb") if isinstance(content, str) else io.BytesIO(content) as stream:
            yield from _descriptions(stream, name)
    except ImageError:  # An OSError as well.
        raise
    except (struct.error, OverflowError, OSError) as error:
        raise ImageError(
            f"{name}: a page is described outside of the file. Restore or convert the TIFF", path=name
        ) from error


def _descriptions(stream: BinaryIO, name: str) -> Iterator[int]:
    layout = _Layout.of(stream.read(16))
    offset, seen = _number(stream, layout.offset, layout.first_offset), set[int]()
    while offset:
        if offset in seen:
            raise ImageError(
                f"{name}: after its last page comes an earlier one. Restore or convert the TIFF",
                value=offset,
                path=name,
            )
        seen.add(offset)
        entries = _number(stream, layout.count, offset)
        # Sorted by their tags, of which this one is the first that there can be.
        tag, kind = struct.unpack(layout.entry, stream.read(struct.calcsize(layout.entry)))
        if tag != _SUBFILE_TYPE or not kind & _NO_PAGE:
            yield offset
        behind = offset + struct.calcsize(layout.count) + entries * struct.calcsize(layout.entry)
        offset = _number(stream, layout.offset, behind)


def begin_with(data: bytes, offset: int) -> bytes:
    """The same file, beginning with the page that is described there."""
    layout = _Layout.of(data)
    place = struct.pack(layout.offset, offset)
    return data[: layout.first_offset] + place + data[layout.first_offset + len(place) :]


def _number(stream: BinaryIO, form: str, offset: int) -> int:
    stream.seek(offset)
    (number,) = struct.unpack(form, stream.read(struct.calcsize(form)))
    return int(number)
