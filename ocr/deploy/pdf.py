"""PDF: pages as pictures, rendered by pdfium."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
            cure = "Remove its password first" if "password" in reason.lower() else "Restore or repair the file"
            raise ImageError(f"{name}: the PDF cannot be opened ({reason}). {cure}", value=reason, path=name) from error
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
