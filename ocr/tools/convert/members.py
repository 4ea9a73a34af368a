"""What is stored of a page: its bytes, metadata as JSON and optionally maps; or the arrays that training needs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError, DataError, GlyphFeedError, StageError
from ocr.formats.maps import pack_maps
from ocr.pipeline import metadata
from ocr.pipeline.cut import Cut
from ocr.pipeline.decode import Decode
from ocr.pipeline.fingerprint import code_digest, digest
from ocr.pipeline.image_header import read_header
from ocr.pipeline.metadata import ARRAYS
from ocr.pipeline.page import FixedPart
from ocr.pipeline.record import arrays_digest, to_record
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets, maps_fingerprint
from ocr.shards.index import ALLOWED, DENSE, MAX_MEMBER_BYTES, RAW
from ocr.shards.ready import ready_digest

IMAGE_EXTENSIONS = ALLOWED - {"json", "npz", "npy"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How pages become members; the same for all shards of a split."""

    kind: str = RAW
    maps: bool = False
    batch: int = 0
    """Ready samples per stored batch; 0: each sample has its own members."""
    fixed_part: FixedPart = field(default_factory=lambda: FixedPart(Decode()))
    targets: Targets = field(default_factory=Targets)

    @property
    def stages(self) -> str:
        """What the index says about the stages; empty for raw samples."""
        return ready_digest(self.kind, self.fixed_part, self.targets) if self.kind != RAW else ""

    def digest(self) -> str:
        """Digest of everything that the members of a page depend on, except the page."""
        stages = ready_digest(self.kind, self.fixed_part, self.targets)
        return digest(
            f"{self.kind} {self.maps} {self.batch} {zlib.ZLIB_RUNTIME_VERSION}", code_digest(__name__), stages
        )

    def extensions(self, filename: str) -> list[str]:
        """Extensions of the members of a page, in order."""
        if self.kind == RAW:
            return [image_extension(filename), "json", *["npz"] * self.maps]
        names = ARRAYS[:1] if self.kind == DENSE else ARRAYS
        return [f"{name}{'s' * bool(self.batch)}.npy" for name in names] + ["json"]


class Parts(NamedTuple):
    """A page in parts, before they are put into members."""

    facts: dict[str, Any]
    blobs: dict[str, bytes]
    """Raw samples: extension and bytes of the image and of the maps."""
    arrays: dict[str, NDArray[Any]]
    """Ready samples: what a cache would hold."""


def take_apart(recipe: Recipe, raw: Sample) -> Parts:
    """All that is stored of a page. Raises DataError if the page is bad, StageError if a stage fails on it."""
    try:
        return _raw_parts(recipe, raw) if recipe.kind == RAW else _ready_parts(recipe, raw)
    except (GlyphFeedError, MemoryError):
        raise
    except Exception as error:
        raise StageError(
            f"{raw.filename} (sample {raw.index}): {type(error).__name__}: {error}", path=raw.filename
        ) from error


def facts_of(recipe: Recipe, raw: Sample) -> dict[str, Any]:
    """The JSON of a page; for a ready page without its pixels, so that some fields are unknown."""
    if recipe.kind != RAW:
        return metadata.to_json(recipe.fixed_part.measure(raw))
    header = read_header(raw.encoded, raw.path, recipe.fixed_part.decode.max_pixels)
    return metadata.source_to_json(replace(raw, raw_size=header.raw_size, orientation=header.orientation))


def put_together(recipe: Recipe, pages: Sequence[Parts]) -> dict[str, bytes]:
    """The members of one page, or of the pages of a batch."""
    if not recipe.batch:
        (page,) = pages
        arrays = {f"{name}.npy": array for name, array in page.arrays.items()}
        members = page.blobs | {name: _npy(array) for name, array in arrays.items()} | {"json": dump(page.facts)}
    else:
        members = {f"{name}s.npy": _npy(_stack(pages, name)) for name in ARRAYS}
        members["json"] = dump([page.facts for page in pages])
    largest = max(members, key=lambda name: len(members[name]))
    if len(members[largest]) > MAX_MEMBER_BYTES:
        first = pages[0].facts["filename"]
        raise DataError(
            f"{first}: its .{largest} has {len(members[largest])} bytes, and readers accept at most {MAX_MEMBER_BYTES}."
            " Lower ready_batches (--ready-batches), or leave the page out",
            setting="ready_batches",
            value=len(members[largest]),
            path=first,
        )
    return {name: members[name] for name in recipe.extensions(pages[0].facts["filename"])}


def dump(facts: Any) -> bytes:
    """JSON; equal facts give equal bytes."""
    return json.dumps(facts, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode("ascii")


def image_extension(filename: str) -> str:
    """The extension of an image in a shard; raises ConfigError if readers would ignore it.

    >>> image_extension("2024/Receipt.1.JPG")
    'jpg'
    """
    extension = PurePosixPath(filename).suffix.lower().removeprefix(".")
    if extension not in IMAGE_EXTENSIONS:
        known = ", ".join(sorted(IMAGE_EXTENSIONS))
        raise ConfigError(
            f"{filename!r}: not an image that shards support ({known}). Rename it, or leave it out",
            value=extension,
            path=filename,
        )
    return extension


def _raw_parts(recipe: Recipe, raw: Sample) -> Parts:
    blobs = {image_extension(raw.filename): raw.encoded}
    facts = facts_of(recipe, raw)
    if recipe.maps:
        page = recipe.targets(recipe.fixed_part.measure(raw))
        assert page.maps is not None
        stream = BytesIO()
        pack_maps(stream, page.maps, maps_fingerprint(page, recipe.targets), compress=True)
        blobs["npz"] = stream.getvalue()
    return Parts(facts, blobs, {})


def _ready_parts(recipe: Recipe, raw: Sample) -> Parts:
    page = recipe.fixed_part(raw)
    if page.image.dtype != np.uint8:
        raise ConfigError(
            f"ready (--ready) keeps pages as bytes, and a transform makes {page.image.dtype} of {raw.filename}: put "
            "the normalisation at the end of the transforms",
            setting="ready",
            value=page.image.dtype,
            path=raw.filename,
        )
    is_dense = recipe.kind == DENSE
    record = to_record(page if is_dense else recipe.targets(page), Cut(page=True, maps=not is_dense, dense=is_dense))
    facts = metadata.to_json(page)
    facts |= {"arrays": arrays_digest(record.arrays), "fields": metadata.fields_digest(metadata.from_json(facts))}
    return Parts(facts, {}, record.arrays)


def _stack(pages: Sequence[Parts], name: str) -> NDArray[Any]:
    first = pages[0].arrays[name].shape
    for page in pages:
        if page.arrays[name].shape != first:
            raise DataError(
                f"{page.facts['filename']}: {name} of {page.arrays[name].shape} in a batch of {first}. Batches need "
                "pages of one size: put a Letterbox(shape=square) into the transforms, or leave out --ready-batches",
                setting="ready_batches",
                value=page.arrays[name].shape,
                path=page.facts["filename"],
            )
    return np.stack([page.arrays[name] for page in pages])


def _npy(array: NDArray[Any]) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()
