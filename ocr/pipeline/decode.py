"""decode: encoded bytes to an upright RGB page, its polygons in the same frame."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from ocr.checks import Range, check_choice
from ocr.errors import ConfigError, ImageError
from ocr.geometry.mend import mend
from ocr.geometry.orientation import apply_orientation, frame_by_geometry, orientation_matrix, upright_size
from ocr.malloc import keep_freed_memory
from ocr.pipeline.image_header import (
    DAMAGE,
    JPEG_FORMATS,
    Header,
    beyond_pillows_limit,
    decode_with_opencv,
    open_image,
    read_header,
)
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

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
            return np.rint(gray.clip(0, 1) * 255).astype(np.uint8)
    whole = gray.astype(np.int64).clip(0)
    return (whole >> max(0, int(whole.max()).bit_length() - 8)).astype(np.uint8)
