"""decode: encoded bytes to an upright RGB page, its polygons in the same frame.

The first bytes of a file say its format, its size and its orientation, before a pixel is decoded.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any

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

from ocr.checks import Range, check_choice
from ocr.errors import ConfigError, ImageError, ImageSizeError
from ocr.geometry.mend import mend
from ocr.geometry.orientation import apply_orientation, frame_by_geometry, orientation_matrix, upright_size
from ocr.malloc import keep_freed_memory
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

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


JPEG_END = b"\xff\xd9"
STRIP = 512
"""Rows of a page that are converted at once."""
BITS_PER_SAMPLE, SAMPLE_FORMAT = 258, 339
"""Tags of TIFF."""
FRAMES = ("auto", "upright", "raw")


@dataclass(frozen=True, slots=True)
class Decode(FixedStage):
    """Read a page upright, not larger than needed.

    `scaled="auto"` lets the JPEG decoder skip the detail that a longest side of `needed_side` cannot show;
    `scaled="off"` gives Pillow's pixels bit for bit. `needed_side` is set by the first stage of the prefix.
    """

    scaled: str = "auto"
    annotation_frame: str = "auto"
    max_pixels: int = 178_956_970
    needed_side: int | None = None

    def __post_init__(self) -> None:
        if not self.scaled:  # YAML reads a bare `off` as false.
            object.__setattr__(self, "scaled", "off")
        check_choice("decode.scaled", self.scaled, ("auto", "off"))
        check_choice("decode.annotation_frame", self.annotation_frame, FRAMES)
        if self.max_pixels not in Range(1):
            problem = f"decode.max_pixels={self.max_pixels!r} must be {Range(1)}, such as 178956970"
            raise ConfigError(problem, setting="decode.max_pixels", value=self.max_pixels)

    def __call__(self, sample: Sample) -> Sample:
        keep_freed_memory()
        header = read_header(sample.encoded, sample.path, self.max_pixels)
        side = self.needed_side if self.scaled == "auto" else None
        image, recovered = decode_pixels(sample.encoded, header, sample.path, side)
        return replace(self._upright(sample, header, image), recovered=recovered)

    def measure(self, sample: Sample) -> Sample:
        """The page as a single gray pixel: enough for everything that depends on geometry alone, such as maps."""
        header = read_header(sample.encoded, sample.path, self.max_pixels)
        return self._upright(sample, header, np.full((1, 1, 3), 128, dtype=np.uint8))

    def _upright(self, sample: Sample, header: Header, image: NDArray[np.uint8]) -> Sample:
        shape = upright_size(header.orientation, *header.raw_size)
        frame = self._frame(sample, header)
        polygons, crossed, simplified = mend(sample.polygons)
        if frame == "raw":
            polygons = polygons.moved(orientation_matrix(header.orientation, *header.raw_size))
        page = replace(
            sample,
            encoded=b"",
            polygons=polygons,
            shape=shape,
            raw_size=header.raw_size,
            orientation=header.orientation,
            polygon_frame=frame,
            crossed_polygons=crossed,
            simplified_polygons=simplified,
        )
        # A page decoded smaller keeps its polygons in full size, so that every decoder gives the same ones.
        reduced_from = shape if (image.shape[1], image.shape[0]) != shape else None
        return replace(page.moved(image, np.eye(3), shape), reduced_from=reduced_from)

    def _frame(self, sample: Sample, header: Header) -> str:
        if self.annotation_frame != "auto":
            return self.annotation_frame
        by_geometry = frame_by_geometry(
            sample.polygons.vertices, header.orientation, header.raw_size, sample.claimed_size
        )
        # Browsers, OpenCV and annotation tools show pages upright, so that is what an annotator saw.
        return by_geometry or "upright"


def decode_pixels(data: bytes, header: Header, path: str, needed_side: int | None) -> tuple[NDArray[np.uint8], str]:
    """Upright RGB pixels, and why a strict decoder refused them if it did."""
    recovered = "Pillow cannot open it" if header.format == "OPENCV" else ""
    if header.format in JPEG_FORMATS and header.mode in ("RGB", "L"):
        try:
            image = _decode_jpeg(data, header, needed_side)
            return apply_orientation(image, header.orientation), ""
        except ValueError as error:
            recovered = str(error) or "damaged JPEG"
    try:
        image = (
            _decode_with_pillow(data, header.format) if header.format != "OPENCV" else decode_with_opencv(data, path)
        )
    except Image.DecompressionBombError as error:
        raise beyond_pillows_limit(path, error) from error
    except DAMAGE as error:
        image, recovered = _rescue_jpeg(data, header, path, error), recovered or str(error)
    if header.format == "TIFF":
        return image, recovered
    return apply_orientation(image, header.orientation), recovered


def _rescue_jpeg(data: bytes, header: Header, path: str, error: Exception) -> NDArray[np.uint8]:
    """A JPEG that Pillow refuses: damaged inside, or without its end marker. A truncated page is an error."""
    if header.format in JPEG_FORMATS and "truncated" not in str(error).lower():
        return decode_with_opencv(data, path)
    if header.format in JPEG_FORMATS and header.mode in ("RGB", "L"):
        try:
            # This decoder is strict: it succeeds only if nothing but the end marker is missing.
            return _decode_jpeg(data + JPEG_END, header, None)
        except ValueError:
            pass
    raise ImageError(
        f"{path}: the image cannot be decoded: {error}. Restore the file, or set on_bad_sample=skip", path=path
    ) from error


def _decode_jpeg(data: bytes, header: Header, needed_side: int | None) -> NDArray[np.uint8]:
    width, height = header.raw_size
    if needed_side is None or max(width, height) < 2 * needed_side:
        return simplejpeg.decode_jpeg(data, "RGB")  # type: ignore[no-any-return]
    # By 2, 4 or 8 only: other reductions have no fast transform (3/8 takes longer than 1/2).
    divisor = next(by for by in (8, 4, 2) if max(width, height) >= by * needed_side)
    image = simplejpeg.decode_jpeg(data, "RGB", min_width=-(-width // divisor), min_height=-(-height // divisor))
    # The decoder rounds up to whole pixels, so the last column or row may be mostly off the page.
    return image[: max(1, round(height / divisor)), : max(1, round(width / divisor))]  # type: ignore[no-any-return]


def _decode_with_pillow(data: bytes, format: str) -> NDArray[np.uint8]:
    with open_image(io.BytesIO(data), format) as opened:
        return pillow_pixels(opened)


def pillow_pixels(image: Image.Image) -> NDArray[np.uint8]:
    """RGB pixels of a Pillow image of any mode, as stored; what is transparent shows white paper."""
    if image.mode[0] in "IF":
        image.load()
        return np.repeat(_as_bytes(_wide_gray(image))[:, :, None], 3, axis=2)
    width, height = image.size
    pixels = np.empty((height, width, 3), dtype=np.uint8)
    for top in range(0, height, STRIP):
        # Converted as a whole, a page of 100 megapixels takes three times its own memory.
        strip = image.crop((0, top, width, min(top + STRIP, height)))
        pixels[top : top + STRIP] = np.asarray(_on_white(strip) if image.has_transparency_data else _as_rgb(strip))
    return pixels


def _as_rgb(image: Image.Image) -> Image.Image:
    return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    """Clear pixels are black where they are stored as RGB, as is the text on them."""
    paper = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(paper, image.convert("RGBA")).convert("RGB")


def _wide_gray(image: Image.Image) -> NDArray[Any]:
    """Gray values of more than 8 bits; Pillow reads those of 32 bits as signed ones."""
    values = np.asarray(image)
    tags = getattr(image, "tag_v2", {})
    is_unsigned = tags.get(SAMPLE_FORMAT, (1,))[0] == 1 and tags.get(BITS_PER_SAMPLE, (0,))[0] == 32
    return values.view(np.uint32) if is_unsigned and values.dtype == np.int32 else values


def _as_bytes(gray: NDArray[Any]) -> NDArray[np.uint8]:
    """Gray values in 8 bits: the highest ones that the brightest pixel needs, since paper is white; floats from 0 to 1.

    Pillow clips at 255, and no file says how many of its bits count: 12 bits in 16 are common.
    """
    if gray.dtype.kind == "f":
        gray = np.nan_to_num(gray, posinf=0, neginf=0)
        if gray.max() <= 1:
            return np.asarray(np.rint(gray.clip(0, 1) * 255), np.uint8)
    whole = gray.astype(np.int64).clip(0)
    return np.asarray(whole >> max(0, int(whole.max()).bit_length() - 8), np.uint8)
