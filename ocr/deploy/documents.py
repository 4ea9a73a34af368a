"""documents: files of several pages. PDFs are rendered by pdfium; a TIFF is read page by page."""

from __future__ import annotations

import io
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ImageError
from ocr.optional import require

PDF_MAGIC = b"%PDF-"
DPI = 200
"""Of the rendered page, which is the frame of its polygons: text of 8 points is 22 pixels high."""
POINTS_PER_INCH = 72
# pdfium is not thread-safe, not even for different documents.
_PDFIUM = threading.Lock()


def count_pdf_pages(content: str | bytes, name: str) -> int:
    """How many pages a PDF has, by its path or its bytes."""
    with _opened(content, name) as document:
        return len(document)


def render_pdf_page(content: str | bytes, name: str, index: int, max_pixels: int) -> NDArray[np.uint8]:
    """One page as RGB at `DPI`, or smaller if it would have more than `max_pixels`."""
    with _opened(content, name) as document:
        try:
            # Without it, pdfium leaves out what is written in the fields of a form.
            document.init_forms()
            page = document[index]
            width, height = page.get_size()
            scale = min(DPI / POINTS_PER_INCH, (0.99 * max_pixels / max(width * height, 1)) ** 0.5)
            picture: NDArray[np.uint8] = page.render(scale=scale, rev_byteorder=True, draw_annots=True).to_numpy()
        except Exception as error:  # pdfium's own, and ctypes errors of damaged pages.
            raise ImageError(
                f"{name}: page {index + 1} cannot be rendered ({error}). Repair the PDF", value=index + 1, path=name
            ) from error
        # Its memory belongs to the document.
        pixels = picture.copy()
    return np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2) if pixels.ndim == 2 else pixels[:, :, :3]


@contextmanager
def _opened(content: str | bytes, name: str) -> Iterator[Any]:
    library = require("pypdfium2", "Reading a PDF")
    with _PDFIUM:
        try:
            document = _load(library, content)
        except (library.PdfiumError, OSError) as error:
            reason = str(error)
            fix = "Remove its password first" if "password" in reason.lower() else "Restore or repair the file"
            raise ImageError(f"{name}: the PDF cannot be opened ({reason}). {fix}", value=reason, path=name) from error
        try:
            yield document
        finally:
            document.close()


def _load(library: Any, content: str | bytes) -> Any:
    """The document; pypdfium2 by itself leaves one without pages open, and with it the file and its memory."""
    pdfium = library.raw
    if isinstance(content, str):
        handle = pdfium.FPDF_LoadDocument(os.fsencode(content) + b"\0", None)
    else:
        handle = pdfium.FPDF_LoadMemDocument64(content, len(content), None)
    if handle and pdfium.FPDF_GetPageCount(handle) < 1:
        pdfium.FPDF_CloseDocument(handle)
        raise library.PdfiumError("it has no pages")
    # Without a handle it fails again, and tells why.
    return library.PdfDocument(handle or content)


_SUBFILE_TYPE = 254
_NO_PAGE = 1 | 4
"""Of its bits: a smaller copy of another picture, and a mask."""
_BIG = 43


@dataclass(frozen=True, slots=True)
class _TiffLayout:
    """How numbers are written: in the order of the bytes, and with 64 bits in a BigTIFF."""

    offset: str
    count: str
    entry: str
    first_offset: int
    """Where the header has the place of the first description."""

    @classmethod
    def of(cls, header: bytes) -> _TiffLayout:
        order = "<" if header[:2] == b"II" else ">"
        if struct.unpack_from(order + "H", header, 2)[0] == _BIG:
            return cls(order + "Q", order + "Q", order + "H10xL4x", 8)
        return cls(order + "L", order + "H", order + "H6xL", 4)


def tiff_pages(content: str | bytes, name: str) -> Iterator[int]:
    """Where each page is described, by path or bytes; raises ImageError after the last one that can be found."""
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
    layout = _TiffLayout.of(stream.read(16))
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
        # Sorted by their tags, of which this one is the first possible.
        tag, kind = struct.unpack(layout.entry, stream.read(struct.calcsize(layout.entry)))
        if tag != _SUBFILE_TYPE or not kind & _NO_PAGE:
            yield offset
        end = offset + struct.calcsize(layout.count) + entries * struct.calcsize(layout.entry)
        offset = _number(stream, layout.offset, end)


def begin_with(data: bytes, offset: int) -> bytes:
    """The same file, beginning with the page that is described there."""
    layout = _TiffLayout.of(data)
    place = struct.pack(layout.offset, offset)
    return data[: layout.first_offset] + place + data[layout.first_offset + len(place) :]


def _number(stream: BinaryIO, form: str, offset: int) -> int:
    stream.seek(offset)
    (number,) = struct.unpack(form, stream.read(struct.calcsize(form)))
    return int(number)
