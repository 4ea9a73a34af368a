"""What can be read from an image file without decoding it, and whether it can be decoded at all."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.errors import ImageError
from ocr.formats.row_mapping import RowMappingWriter
from ocr.geometry.orientation import upright_size
from ocr.pipeline.decode import (
    DAMAGE,
    JPEG_END,
    JPEG_FORMATS,
    MIN_SIDE,
    ORIENTATION_TAG,
    Decode,
    Header,
    decode_pixels,
    image_format,
    open_image,
    read_header,
)

PIXEL_LIMIT = Decode().max_pixels


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One image file: its raw (stored) size, EXIF orientation, and what is wrong with it, if anything is."""

    path: Path
    byte_count: int
    raw_size: tuple[int, int] = (0, 0)
    orientation: int = 1
    problem: str | None = None
    detail: str = ""

    def to_stored(self) -> list[Any]:
        """The facts as they are kept of many images; the path is known by the name."""
        return [self.byte_count, self.raw_size, self.orientation, self.problem, self.detail]

    @classmethod
    def from_stored(cls, folder: Path, name: str, stored: list[Any]) -> ImageFacts:
        """The facts about an image of a folder."""
        byte_count, (width, height), *rest = stored
        return cls(folder / name, byte_count, (width, height), *rest)

    @classmethod
    def writer(cls, folder: Path) -> RowMappingWriter[ImageFacts]:
        """Collects the facts about the images of a folder, by name."""
        return RowMappingWriter(cls.to_stored, partial(cls.from_stored, folder))

    @property
    def readable(self) -> bool:
        """The header could be read and no pixels are known to be missing."""
        return self.problem is None or self.problem == "corrupt-but-readable"

    def size_in(self, frame: str) -> tuple[int, int]:
        """Width and height in the raw or the upright frame."""
        return self.raw_size if frame == "raw" else upright_size(self.orientation, *self.raw_size)


def inspect_image(path: Path, *, deep: bool = False, max_pixels: int = PIXEL_LIMIT) -> ImageFacts:
    """Header, orientation and end of one file; `deep` decodes every pixel too."""
    facts = ImageFacts(path, path.stat().st_size)
    if not facts.byte_count:
        return replace(facts, problem="empty-file", detail="0 bytes")
    try:
        header = _open_header(path, max_pixels)
    except ImageError:
        with path.open("rb") as file:
            detail = f"{facts.byte_count} bytes starting {file.read(8)!r}: not a readable image"
        return replace(facts, problem="unreadable-image", detail=detail)
    (width, height), facts = header.raw_size, replace(facts, raw_size=header.raw_size, orientation=header.orientation)
    if width * height > max_pixels:
        return replace(facts, problem="too-many-pixels", detail=f"{width} x {height}, the limit is {max_pixels}")
    if min(width, height) < MIN_SIDE:
        return replace(facts, problem="unreadable-image", detail=f"{width} x {height} pixels cannot hold text")
    problem, detail = _check_pixels(path, header, deep)
    return replace(facts, problem=problem, detail=detail)


def _open_header(path: Path, max_pixels: int) -> Header:
    """Read only the first bytes; if in doubt, the pipeline's reader decides, which reads the complete file."""
    try:
        with path.open("rb") as stream, open_image(stream, _format_of(stream)) as image:
            header = Header(image.format or "", image.mode, image.size, 1)
            if image.width * image.height > max_pixels or min(image.size) < MIN_SIDE:
                return header
            # For the tags of a PNG Pillow would decode all of it.
            if header.format != "PNG":
                orientation = image.getexif().get(ORIENTATION_TAG, 1)
                orientation = orientation if orientation in range(1, 9) else 1
                # Pillow turns TIFF pages upright by itself and reports the upright size.
                size = upright_size(orientation, *image.size) if header.format == "TIFF" else image.size
                return replace(header, raw_size=size, orientation=orientation)
    except DAMAGE:
        pass
    return read_header(path.read_bytes(), str(path), max_pixels)


def _format_of(stream: IO[bytes]) -> str:
    start = stream.read(16)
    stream.seek(0)
    # A format that is not read is a KeyError, one of DAMAGE.
    return image_format(start) or ""


def _check_pixels(path: Path, header: Header, deep: bool) -> tuple[str | None, str]:
    """The kind and the detail of what is wrong with the pixels, or (None, "")."""
    try:
        # Without its end marker a JPEG can be whole or cut short: only decoding shows which.
        deep = deep or _lacks_end(path, header.format)
        if header.format == "PNG":
            # Pillow checks the sum of every PNG chunk without decoding; for most other formats verify() does nothing.
            with path.open("rb") as stream, open_image(stream, "PNG") as image:
                image.verify()
        if not deep:
            return None, ""
        # 64 pixels: every coefficient of a JPEG is read all the same, in a fraction of the memory.
        complaint = decode_pixels(path.read_bytes(), header, str(path), 64)[1]
        return ("corrupt-but-readable", complaint) if complaint else (None, "")
    except DAMAGE as error:
        text = str(error.__cause__ or error)
        return ("truncated-image" if "truncated" in text.lower() else "unreadable-image"), text


def _lacks_end(path: Path, file_format: str) -> bool:
    """Whether a JPEG has no end marker. Bytes after it (a phone's video, padding) are fine."""
    if file_format not in JPEG_FORMATS:
        return False
    with path.open("rb") as file:
        file.seek(-2, io.SEEK_END)
        if file.read() == JPEG_END:
            return False
        file.seek(0)
        return not _has_jpeg_end(file.read())


def _has_jpeg_end(data: bytes) -> bool:
    """Walk the segments to the first scan, so that the end marker of an EXIF thumbnail does not count."""
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker, length = data[position + 1], int.from_bytes(data[position + 2 : position + 4], "big")
        if marker == 0xDA:
            return data.find(b"\xff\xd9", position) >= 0
        position += 1 if marker == 0xFF else 2 + length
    return False


def same_bytes(images: Sequence[ImageFacts]) -> list[list[int]]:
    """Groups of files with the same content, by their number; only files of the same length are read."""
    lengths = np.fromiter((facts.byte_count for facts in images), np.int64, len(images))
    order = np.argsort(lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[order])) + 1
    groups: list[tuple[int, list[int]]] = []
    for alike in np.split(order, cuts):
        if len(alike) > 1 and lengths[alike[0]]:
            by_digest: dict[bytes, list[int]] = defaultdict(list)
            for number in alike.tolist():
                by_digest[blake2b(images[number].path.read_bytes(), digest_size=16).digest()].append(number)
            groups += [(int(alike[0]), group) for group in by_digest.values() if len(group) > 1]
    return [group for _, group in sorted(groups)]


def read_upright(facts: ImageFacts, longest_side: int) -> tuple[NDArray[np.uint8], str]:
    """The upright page in RGB, its longest side at most `longest_side`, and what a strict decoder said against it.

    The pixels are the same as in training, damaged pages included; a page that training cannot decode raises one of
    DAMAGE.
    """
    data = facts.path.read_bytes()
    # Whether the page is too large was judged when its header was read.
    header = read_header(data, str(facts.path), facts.raw_size[0] * facts.raw_size[1])
    page, complaint = decode_pixels(data, header, str(facts.path), longest_side)
    scale = longest_side / max(page.shape[:2])
    if scale < 1:
        height, width = (max(1, round(side * scale)) for side in page.shape[:2])
        page = np.asarray(cv2.resize(page, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return page, complaint
