"""writer: what is stored of a page, and a tar that has the same bytes on every machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import PurePosixPath
from tarfile import USTAR_FORMAT, TarInfo
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError, DataError, GlyphFeedError, StageError
from ocr.geometry.orientation import upright_size
from ocr.pipeline.decode import Decode, read_header
from ocr.pipeline.dense import DensePage, from_json, source_to_json, to_json
from ocr.pipeline.fingerprint import code_digest, digest
from ocr.pipeline.prefix import FixedPart
from ocr.pipeline.sample import Sample
from ocr.shards.index import BLOCK, IMAGES, MAX_MEMBER_BYTES, PAGE, RAW, READY, Members
from ocr.shards.source import ready_digest, ready_stages


class StoredPage(NamedTuple):
    """What is stored of a page."""

    members: dict[str, bytes]
    """By extension, in their order."""
    size: tuple[int, int]
    """(width, height) of the upright page."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How pages become members; the same for all shards of a split."""

    kind: str = RAW
    fixed_part: FixedPart = field(default_factory=lambda: FixedPart(Decode()))
    """What makes ready pages."""

    @property
    def stages(self) -> str:
        """What the index says about the stages; empty for raw samples."""
        return ready_stages(self.fixed_part) if self.kind == READY else ""

    def digest(self) -> str:
        """Digest of everything that the members of a page depend on, except the page."""
        return digest(self.kind, code_digest(__name__), ready_stages(self.fixed_part))

    def extensions(self, filename: str) -> list[str]:
        """Extensions of the members of a page, in order."""
        return [PAGE if self.kind == READY else image_extension(filename), "json"]

    def store(self, raw: Sample) -> StoredPage:
        """All that is stored of a page. Raises DataError if the page is bad, StageError if a stage fails on it."""
        try:
            stored = self._raw(raw) if self.kind == RAW else self._ready(raw)
        except (GlyphFeedError, MemoryError):
            raise
        except Exception as error:
            raise StageError(
                f"{raw.filename} (sample {raw.index}): {type(error).__name__}: {error}", path=raw.filename
            ) from error
        for extension, data in stored.members.items():
            if len(data) > MAX_MEMBER_BYTES:
                problem = f"{raw.filename}: its .{extension} has {len(data)} bytes, at most "
                raise DataError(f"{problem}{MAX_MEMBER_BYTES}. Leave the page out", value=len(data), path=raw.path)
        return stored

    def _raw(self, raw: Sample) -> StoredPage:
        header = read_header(raw.encoded, raw.path, self.fixed_part.decode.max_pixels)
        known = replace(raw, raw_size=header.raw_size, orientation=header.orientation)
        members = {image_extension(raw.filename): raw.encoded, "json": _dump(source_to_json(known))}
        return StoredPage(members, upright_size(header.orientation, *header.raw_size))

    def _ready(self, raw: Sample) -> StoredPage:
        page = self.fixed_part(raw)
        if page.image.dtype != np.uint8:
            raise ConfigError(
                f"ready (--ready) keeps pages as bytes, but a transform makes {page.image.dtype} of {raw.filename}. "
                "Put the normalisation at the end of the transforms",
                setting="ready",
                value=page.image.dtype,
                path=raw.filename,
            )
        document, dense = to_json(page), DensePage.pack(page.image).data
        document["digest"] = ready_digest(from_json(document), dense)
        return StoredPage({PAGE: _npy(dense), "json": _dump(document)}, page.shape)


def image_extension(filename: str) -> str:
    """The extension of an image in a shard; raises ConfigError if readers would ignore it.

    >>> image_extension("2024/Receipt.1.JPG")
    'jpg'
    """
    extension = PurePosixPath(filename).suffix.lower().removeprefix(".")
    if extension not in IMAGES:
        raise ConfigError(
            f"{filename!r}: not an image that shards support ({', '.join(sorted(IMAGES))}). Rename it, or leave it out",
            value=extension,
            path=filename,
        )
    return extension


class TarWriter:
    """Writes members without time and owner, so that the same input gives the same bytes; counts and hashes them."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._hashed, self.size = stream, hashlib.sha256(), 0

    def add(self, key: str, members: dict[str, bytes]) -> Members:
        """Append a sample; returns offset and size of each of its members."""
        places = {}
        for extension, data in members.items():
            member = TarInfo(f"{key}.{extension}")
            member.size = len(data)
            self._write(member.tobuf(USTAR_FORMAT))
            places[extension] = self.size, len(data)
            self._write(data)
            self._write(b"\0" * (-len(data) % BLOCK))
        return places

    def end(self) -> str:
        """Write the two empty blocks that end a tar; returns the sha256 of all of it."""
        self._write(b"\0" * (2 * BLOCK))
        return self._hashed.hexdigest()

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._hashed.update(data)
        self.size += len(data)


def _dump(document: dict[str, Any]) -> bytes:
    """JSON; equal documents give equal bytes."""
    return json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode("ascii")


def _npy(array: NDArray[np.uint8]) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()
