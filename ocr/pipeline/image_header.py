"""What the first bytes of an image file say: its format, its size and its orientation, before a pixel is decoded."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from ocr.errors import ImageError, ImageSizeError
from ocr.geometry.orientation import upright_size

ORIENTATION_TAG = 0x0112
JPEG_FORMATS = ("JPEG", "MPO")
# What Pillow raises for damaged bytes: a fractional width, for example, ends in a TypeError.
DAMAGE = (
    *(OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, ArithmeticError, struct.error),
    Image.DecompressionBombError,
)
# Nothing of this size can hold a letter; a 1x1 page is a tracking pixel or a failed export.
MIN_SIDE = 4

HEADER_BYTES = 64 << 10
"""Read of a JPEG to learn its size; EXIF data and a colour profile come before it."""

# The formats that are read, by their content: Pillow knows dozens, and hands some of them to other programs.
_MAGIC = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "WEBP": (b"RIFF",),
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "BMP": (b"BM",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "JPEG2000": (b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n"),
    "PPM": (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"),
}
# Called directly, because `Image.open` applies the limit of pixels that the process has set for itself.
_READERS: dict[str, Callable[[IO[bytes]], ImageFile.ImageFile]] = {
    **dict.fromkeys(JPEG_FORMATS, JpegImagePlugin.jpeg_factory),
    "PNG": PngImagePlugin.PngImageFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "JPEG2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
    "PPM": PpmImagePlugin.PpmImageFile,
}


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of an image before its pixels are decoded."""

    format: str
    mode: str
    raw_size: tuple[int, int]
    orientation: int


def image_format(start: bytes) -> str | None:
    """The format of a file that starts with these bytes, 12 or more; None if it is not one that is read.

    >>> image_format(b"%!PS-Adobe-3.0 EPSF-3.0") is None
    True
    """
    found = next((name for name, magic in _MAGIC.items() if start.startswith(magic)), None)
    return None if found == "WEBP" and start[8:12] != b"WEBP" else found


def open_image(stream: IO[bytes], format: str) -> ImageFile.ImageFile:
    """Pillow's image of one of these formats, its pixels not yet read; raises one of DAMAGE."""
    return _READERS[format](stream)


def read_header(data: bytes, path: str, max_pixels: int) -> Header:
    """Format, size and orientation without decoding a pixel."""
    if not data:
        problem = f"{path}: the file is empty (0 bytes). Restore it, or set on_bad_sample=skip"
        raise ImageError(problem, value=data, path=path)
    format = image_format(data[:16])
    if format is None:
        raise _unreadable(data, path)
    declared = declared_size(data, format)
    if declared is not None:
        # Before any library sees the file: Pillow allocates a WebP's canvas, and OpenCV decodes to tell the size.
        check_pixel_count(declared, path, max_pixels)
    try:
        opened = open_image(io.BytesIO(data), format)
    except Image.DecompressionBombError as error:
        raise beyond_pillows_limit(path, error) from error
    except DAMAGE as error:
        if declared is None or (format == "PNG" and not _has_its_chunks(data)):
            raise _unreadable(data, path) from error
        header = _header_without_pillow(data, path, error)
        check_pixel_count(header.raw_size, path, max_pixels)
    else:
        with opened:
            # Checked first, because some formats store the orientation after the pixels.
            check_pixel_count(opened.size, path, max_pixels)
            header = Header(opened.format or "", opened.mode, opened.size, _read_orientation(opened, data))
    _check_sides(header.raw_size, path)
    if header.format == "TIFF":
        # Pillow turns TIFF pages upright by itself and reports the upright size.
        header = replace(header, raw_size=upright_size(header.orientation, *header.raw_size))
    return header


def size_in_header(stream: IO[bytes], path: str, max_pixels: int) -> tuple[int, int]:
    """(width, height) of an upright page; of a JPEG only the start of the file is read, if its header is there."""
    data = stream.read(HEADER_BYTES)
    if image_format(data[:16]) in JPEG_FORMATS:
        with suppress(ImageError):
            header = read_header(data, path, max_pixels)
            return upright_size(header.orientation, *header.raw_size)
    header = read_header(data + stream.read(), path, max_pixels)
    return upright_size(header.orientation, *header.raw_size)


def declared_size(data: bytes, format: str) -> tuple[int, int] | None:
    """(width, height) in the header of a format that OpenCV reads too; None if it is damaged, or another format."""
    try:
        match format:
            case "JPEG":
                # By the library that decodes it; 1.4 microseconds.
                height, width, *_ = simplejpeg.decode_jpeg_header(data, strict=False)
            case "PNG" if data[12:16] == b"IHDR":
                width, height = struct.unpack_from(">II", data, 16)
            case "BMP":
                is_old = struct.unpack_from("<I", data, 14) == (12,)
                width, height = struct.unpack_from("<HH" if is_old else "<ii", data, 18)
            case "WEBP":
                width, height = _webp_size(data)
            case "TIFF":
                width, height = _tiff_size(data)
            case _:
                return None
    except (ValueError, LookupError, struct.error):
        return None
    return abs(int(width)), abs(int(height))


def _has_its_chunks(data: bytes) -> bool:
    """Whether every chunk of a PNG ends within the file: OpenCV allocates what a chunk declares, up to 4 GB."""
    at, name = 8, b""
    while at < len(data) and name != b"IEND":
        if at + 8 > len(data):
            return False
        length, name = struct.unpack_from(">I4s", data, at)
        at += 12 + length
    return at <= len(data)


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise ValueError("no size")


def _tiff_size(data: bytes) -> tuple[int, int]:
    """From the tags of the first page, 12 bytes each: number, type, count, value."""
    order = "<" if data[:2] == b"II" else ">"
    (start,) = struct.unpack_from(f"{order}4xI", data)
    (count,) = struct.unpack_from(f"{order}H", data, start)
    sizes: dict[int, int] = {}
    for at in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(f"{order}HH", data, at)
        if tag in (256, 257):
            (sizes[tag],) = struct.unpack_from(f"{order}{'H' if kind == 3 else 'I'}", data, at + 8)
    return sizes[256], sizes[257]


def check_pixel_count(size: tuple[int, int], path: str, max_pixels: int) -> None:
    """Raise ImageError if a page has too many pixels."""
    width, height = size
    if width * height > max_pixels:
        raise ImageSizeError(
            f"{path}: {width}x{height} is {width * height:,} pixels, more than "
            f"decode.max_pixels={max_pixels}. Raise the setting if the page is genuine",
            setting="decode.max_pixels",
            value=size,
            path=path,
        )


def _check_sides(size: tuple[int, int], path: str) -> None:
    width, height = size
    if min(width, height) < MIN_SIDE:
        raise ImageError(
            f"{path}: {width}x{height} pixels cannot hold text (each side must be >= {MIN_SIDE}). "
            "Remove the page, or set on_bad_sample=skip",
            value=size,
            path=path,
        )


def _read_orientation(opened: Image.Image, data: bytes) -> int:
    """The EXIF orientation, 1-8; 1 if the tag is missing or damaged, like `ImageOps.exif_transpose`."""
    keys = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")
    after_pixels = data[data.rfind(b"IDAT") :] if opened.format == "PNG" else b""
    try:
        if opened.format == "PNG" and not any(key in after_pixels for key in keys):
            # `opened.getexif` would decode the whole PNG to see whether a tag follows the pixels.
            exif = Image.Image.getexif(opened)
        else:
            exif = opened.getexif()
        value = exif.get(ORIENTATION_TAG)
    except DAMAGE:
        return 1
    return next((orientation for orientation in range(1, 9) if value == orientation), 1)


def _header_without_pillow(data: bytes, path: str, error: Exception) -> Header:
    """Old versions of Pillow cannot read 48-bit TIFF, and all refuse some damaged headers that OpenCV reads."""
    try:
        image = decode_with_opencv(data, path)
    except ImageError:
        raise _unreadable(data, path) from error
    return Header("OPENCV", "RGB", (image.shape[1], image.shape[0]), 1)


def beyond_pillows_limit(path: str, error: Image.DecompressionBombError) -> ImageSizeError:
    """For WebP and TIFF, Pillow applies the limit that the process has set for itself, which is not ours to change."""
    problem = f"{path}: {error} Raise PIL.Image.MAX_IMAGE_PIXELS, or set on_bad_sample=skip"
    return ImageSizeError(problem, setting="PIL.Image.MAX_IMAGE_PIXELS", value=Image.MAX_IMAGE_PIXELS, path=path)


def _unreadable(data: bytes, path: str) -> ImageError:
    return ImageError(
        f"{path}: not an image that can be read ({len(data)} bytes, starting {data[:8]!r}); known by their content are "
        f"{', '.join(_MAGIC)}. Convert it, remove it from the annotation, or set on_bad_sample=skip",
        value=data[:8],
        path=path,
    )


def decode_with_opencv(data: bytes, path: str) -> NDArray[np.uint8]:
    """The pixels as stored, RGB; ImageError if OpenCV cannot read them. The caller has checked the declared size."""
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:  # More pixels than OpenCV allows.
        image = None
    if image is None:
        raise ImageError(
            f"{path}: neither Pillow nor OpenCV can decode it. Restore the file, or set on_bad_sample=skip", path=path
        )
    return np.asarray(image, dtype=np.uint8)
