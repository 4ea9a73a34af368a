"""Inputs: whatever holds pages (paths, bytes, arrays, tensors, PDFs, folders, patterns), read when it is needed."""

from __future__ import annotations

import glob
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ocr.deploy.documents import PDF_MAGIC, begin_with, count_pdf_pages, render_pdf_page, tiff_pages
from ocr.errors import ConfigError, ImageError
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.malloc import return_freed_memory
from ocr.pipeline.decode import DAMAGE, Decode, check_pixel_count, image_format, pillow_pixels
from ocr.pipeline.image_listing import ImageListing
from ocr.pipeline.sample import NO_POLYGONS, Sample

PAGE_EXTENSIONS = (*IMAGE_EXTENSIONS, ".pdf")
PAGE_MARK = "#page="
"""Between the name of a PDF or TIFF and the number of a page in it, as in browsers."""
START_BYTES = 16
"""Of a file, which tell its kind."""
BATCH_AXES = 4
# Pillow reads the pixels of an image that was opened only now; two threads with the same one would share its file.
_LOADING = threading.Lock()
LARGE_BYTES = 128 << 20
"""Of decoded pixels: after so many, what decoding took besides is not kept for the next page."""


@dataclass(frozen=True, slots=True)
class PageSource:
    """One page, read when it is needed, and once more to be drawn on."""

    name: str
    number: int | None
    """Of the page in its PDF or TIFF, from 1; None for an image."""
    read: Callable[[Decode], Sample]


def numbered(name: str, number: int | None) -> str:
    """The name of a page: that of its file, with its number if it has several.

    >>> numbered("a.jpg", None), numbered("b.pdf", 2)
    ('a.jpg', 'b.pdf#page=2')
    """
    return name if number is None else f"{name}{PAGE_MARK}{number}"


class PagePixels:
    """The pixels of one page, decoded again only if finer ones are needed."""

    def __init__(self, page: PageSource) -> None:
        self._page = page
        self._kept: Sample | None = None

    def read(self, decode: Decode) -> Sample:
        """The page, at least as fine as `decode` needs it."""
        kept = self._kept
        if kept is None or (kept.reduced_from is not None and max(kept.image.shape) < (decode.needed_side or np.inf)):
            # Before the page is decoded, which takes more memory than its pixels.
            self._kept = kept = None
            self._kept = kept = self._page.read(decode)
        return kept

    def release(self) -> None:
        """Keep no pixels."""
        self._kept = None


def is_single(source: object) -> bool:
    """Whether a source is one image, as opposed to a PDF, a TIFF of several pages, a folder, or a collection."""
    if isinstance(source, (str, os.PathLike)) and files_below(os.fspath(source)) != [os.fspath(source)]:
        return False
    if isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)):
        first = list(islice(pages_of(source), 2))
        return len(first) == 1 and first[0].number is None
    return isinstance(source, Image.Image) or (_is_array(source) and source.ndim != BATCH_AXES)


def pages_of(source: object) -> Iterator[PageSource]:
    """The pages of an image, a PDF, a TIFF, a folder, a glob pattern, an array, a tensor, or an iterable of them."""
    if isinstance(source, (str, os.PathLike)):
        for file in files_below(os.fspath(source)):
            yield from _file_pages(file)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        yield from _content_pages(bytes(source), "bytes", partial(_decode, bytes(source), "bytes"))
    elif _is_array(source):
        for page in source if source.ndim == BATCH_AXES else (source,):
            yield PageSource("array", None, partial(_read_array, page))
    elif isinstance(source, Image.Image):
        yield PageSource(_pillow_name(source), None, partial(_read_pillow, source))
    elif isinstance(source, Iterable) and not isinstance(source, Mapping) and not hasattr(source, "read"):
        for part in source:
            yield from pages_of(part)
    else:
        raise ConfigError(
            f"a page cannot be a {type(source).__name__}. Pass a path, bytes (of an open file: file.read()), an array "
            "(H, W, 3) or a tensor (3, H, W) of uint8, a Pillow image, or an iterable of them",
            value=source,
        )


def _file_pages(path: str) -> Iterator[PageSource]:
    try:
        with open(path, "rb") as stream:
            start = stream.read(START_BYTES)
    except (OSError, ValueError):
        start = b""  # Reported when the page is read.
    yield from _content_pages(path, path, partial(_read_file, path), start)


def _content_pages(
    content: str | bytes, name: str, read: Callable[[Decode], Sample], start: bytes | None = None
) -> Iterator[PageSource]:
    """The pages of a file, by its path or its bytes; `read` is for an image."""
    if start is None:
        assert isinstance(content, bytes)
        start = content[:START_BYTES]
    if start.startswith(PDF_MAGIC):
        yield from _pdf_pages(content, name)
    elif image_format(start) == "TIFF":
        yield from _tiff_pages(content, name)
    else:
        yield PageSource(name, None, read)


def _is_array(source: object) -> TypeGuard[Any]:
    """Whether it is a NumPy array or a tensor; torch is not imported for the question."""
    torch = sys.modules.get("torch")
    return isinstance(source, np.ndarray) or (torch is not None and isinstance(source, torch.Tensor))


def files_below(path: str) -> list[str]:
    """The file itself, the images and PDFs below a folder, or the files that a glob pattern matches."""
    if os.path.isdir(path):
        try:
            return [os.path.join(path, name) for name in sorted(ImageListing(Path(path), PAGE_EXTENSIONS))]
        except ConfigError as error:  # The message of a dataset.
            kinds = ", ".join(PAGE_EXTENSIONS)
            raise ConfigError(
                f"{path} holds no image or PDF ({kinds}). Pass the folder of the pages", path=path
            ) from error
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
    if not found:
        raise ConfigError(f"{path} matches no file. Quote the pattern, or pass a folder", path=path)
    return found


def _pdf_pages(content: str | bytes, name: str) -> Iterator[PageSource]:
    try:
        pages = count_pdf_pages(content, name)
    except ImageError as error:
        # Reported when it is read, like every other bad page, so that a stream can skip it.
        yield PageSource(name, None, partial(_refuse, error))
        return
    for index in range(pages):
        yield PageSource(name, index + 1, partial(_read_pdf, content, name, index))


def _tiff_pages(content: str | bytes, name: str) -> Iterator[PageSource]:
    """A TIFF of one page is an image like others; several have numbers."""
    first, number = 0, 0
    try:
        for number, offset in enumerate(tiff_pages(content, name), 1):
            first = first or offset
            if number == 2:
                yield PageSource(name, 1, partial(_read_tiff, content, name, first))
            if number > 1:
                yield PageSource(name, number, partial(_read_tiff, content, name, offset))
    except ImageError as error:
        if number == 1:
            yield PageSource(name, 1, partial(_read_tiff, content, name, first))
        if number:
            yield PageSource(name, number + 1, partial(_refuse, error))
            return
    if number < 2:
        # The decoder reports what is damaged from the start.
        yield PageSource(name, None, partial(_read_tiff, content, name, first))


def _refuse(error: ImageError, decode: Decode) -> Sample:
    raise error


def _read_file(path: str, decode: Decode) -> Sample:
    return _decode(_content_of(path), path, decode)


def _content_of(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (OSError, ValueError) as error:  # A NUL in the path is a ValueError.
        reason = getattr(error, "strerror", None) or error
        raise ImageError(f"{path}: cannot be opened ({reason}). Check the path", path=path) from error


def _read_tiff(content: str | bytes, name: str, offset: int, decode: Decode) -> Sample:
    data = _content_of(content) if isinstance(content, str) else content
    return _decode(begin_with(data, offset) if offset else data, name, decode)


def _decode(data: bytes, name: str, decode: Decode) -> Sample:
    page = decode(Sample(0, os.path.basename(name), name, NO_POLYGONS, annotated=False, encoded=data))
    if page.image.nbytes >= LARGE_BYTES:
        return_freed_memory()
    return page


def _read_pdf(content: str | bytes, name: str, index: int, decode: Decode) -> Sample:
    return _upright(render_pdf_page(content, name, index, decode.max_pixels), name, decode)


def _read_pillow(image: Image.Image, decode: Decode) -> Sample:
    name = _pillow_name(image)
    try:
        with _LOADING:
            upright = ImageOps.exif_transpose(image)
        pixels = pillow_pixels(upright)
    except DAMAGE as error:
        raise ImageError(f"{name}: the image cannot be decoded: {error}. Restore or convert it", path=name) from error
    return _upright(pixels, name, decode)


def _pillow_name(image: Image.Image) -> str:
    return getattr(image, "filename", "") or "image"


def _read_array(array: Any, decode: Decode) -> Sample:
    if not isinstance(array, np.ndarray):
        array = _channels_last(array)
    if array.dtype == np.uint16:
        array = (array >> 8).astype(np.uint8)
    if array.dtype != np.uint8:
        raise ConfigError(
            f"an array of {array.dtype} is not a page: its range is unknown. Convert it to uint8 (0-255) or uint16",
            value=array.dtype,
        )
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ConfigError(
            f"an array of shape {array.shape} is not a page: it must be (H, W) or (H, W, 3), RGB", value=array.shape
        )
    pixels = np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array[:, :, :3]
    # An array that was given must stay as it is.
    pixels.flags.writeable = False
    return _upright(pixels, "array", decode)


def _channels_last(tensor: Any) -> NDArray[Any]:
    """A tensor of one page, (C, H, W) as torchvision reads images, as an array (H, W, C)."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return np.moveaxis(array, 0, 2) if array.ndim == 3 and array.shape[0] in (1, 3, 4) else array


def _upright(image: NDArray[np.uint8], name: str, decode: Decode) -> Sample:
    """A page whose pixels are already decoded."""
    size = (image.shape[1], image.shape[0])
    if not min(size):
        raise ImageError(f"{name}: an image of {size[0]}x{size[1]} pixels is not a page", value=size, path=name)
    check_pixel_count(size, name, decode.max_pixels)
    page = Sample(0, os.path.basename(name), name, NO_POLYGONS, annotated=False)
    return replace(page, image=np.ascontiguousarray(image), shape=size, raw_size=size)
