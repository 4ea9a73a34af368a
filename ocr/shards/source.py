"""source: tar shards, of this machine or an object store, become the samples that their folder would give."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import AnnotationError, DataError, ImageError
from ocr.pipeline import metadata
from ocr.pipeline.batch import are_consecutive
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.metadata import ARRAYS, read_claimed_size, read_polygons
from ocr.pipeline.record import arrays_digest, with_arrays
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import NO_POLYGONS, Signature, annotation_digest
from ocr.shards.files import ShardFiles
from ocr.shards.index import KEY_DIGITS, RAW, ShardIndex, StoredSample, image_extension
from ocr.shards.storage import Storage

_SIXTY_BITS = (1 << 60) - 1
PAGES_KEPT = 4096
"""Ready samples whose JSON a process remembers, some 10 kB each: parsing it takes as long as copying the arrays."""


class ShardSource:
    """The pages of tar shards with an index, in the order of their source, read at random."""

    def __init__(self, index: ShardIndex, urls: Sequence[str], storage: Storage, first_number: int = 0) -> None:
        """`first_number` is that of the first sample, where keys do not tell."""
        samples = index.samples
        self._first_number = first_number
        self._has_own_keys = all(len(sample.key) == KEY_DIGITS and sample.key.isdigit() for sample in samples)
        if self._has_own_keys:
            # Our own keys are numbers in the order of the source, whatever order the shards are in.
            samples = tuple(sorted(samples, key=lambda sample: sample.key))
        self.index = replace(index, samples=samples)
        self.urls = list(urls)
        self.skipped: dict[str, str] = {}
        self.files = ShardFiles(self.urls, index.shards, storage)
        self._proven = np.zeros(len(samples), dtype=bool)
        self._digests: dict[int, str] = {}
        self._pages: dict[int, Sample] = {}
        self._listed: tuple[str, list[dict[str, Any]]] = ("", [])

    def __len__(self) -> int:
        return len(self.index.samples)

    @property
    def location(self) -> str:
        more = f" and {len(self.urls) - 1} more" if len(self.urls) > 1 else ""
        return f"{self.urls[0]}{more}"

    @property
    def names(self) -> Sequence[str]:
        return [sample.filename for sample in self.index.samples]

    @property
    def annotated(self) -> bool:
        return self.index.annotated

    @property
    def is_ready(self) -> bool:
        """Whether samples are stored as the fixed stages made them."""
        return self.index.kind != RAW

    @cached_property
    def shard_of(self) -> NDArray[np.int64]:
        """The shard of each sample, for an order that goes from shard to shard."""
        return np.array([sample.shard for sample in self.index.samples], dtype=np.int64)

    def number(self, index: int) -> int:
        """The place of a sample in the source, so that a part of its shards gives a part of its samples."""
        if not self._has_own_keys:
            return self._first_number + index
        return int(self.index.samples[index].key) + (self._positions[index] if self.holds_batches else 0)

    def entry(self, index: int) -> Sample:
        stored = self.index.samples[index]
        return Sample(
            index, stored.filename, f"{self.urls[stored.shard]}/{stored.filename}", NO_POLYGONS, self.annotated
        )

    def read(self, index: int) -> Sample:
        return self._read_ready(index) if self.is_ready else self._read_raw(index)

    def _read_raw(self, index: int) -> Sample:
        stored = self.index.samples[index]
        extension = image_extension(stored.members)
        if extension is None:
            raise ImageError(f"{self._where(stored)}: no image among its members {', '.join(stored.members)}")
        encoded = self._member(stored, extension).tobytes()
        if stored.content and content_digest(encoded).hex() != stored.content:
            raise ImageError(f"{self._where(stored, extension)}: not the bytes that were stored. Fetch the shard anew")
        annotation = self.annotation(index)
        claimed, polygons = read_claimed_size(annotation), read_polygons(annotation)
        if stored.annotation and annotation_digest(polygons, claimed, self.annotated).hex() != stored.annotation:
            raise AnnotationError(f"{self._where(stored, 'json')}: not the annotation that was stored")
        page = replace(self.entry(index), polygons=polygons, claimed_size=claimed, encoded=encoded)
        return page if self.index.source else replace(page, filename=_name(annotation, page.filename))

    def _read_ready(self, index: int) -> Sample:
        page, stored = self._ready_page(index), self.index.samples[index]
        arrays = {name: self._array(stored, name, index) for name in ARRAYS}
        self._prove(index, arrays)
        return with_arrays(page, arrays)

    def _ready_page(self, index: int) -> Sample:
        """All of a ready sample but its arrays."""
        page = self._pages.get(index)
        if page is None:
            page = self._noted_page(index)
            if len(self._pages) < PAGES_KEPT:
                self._pages[index] = page
        return page

    def _noted_page(self, index: int) -> Sample:
        noted = self.annotation(index)
        self._digests[index] = noted.get("arrays", "")
        try:
            fields = metadata.from_json(noted)
        except (KeyError, TypeError, ValueError) as error:
            where = self._where(self.index.samples[index], "json")
            raise AnnotationError(f"{where}: not the JSON of a ready sample ({error!r}). Convert it again") from error
        return replace(self.entry(index), **fields, map_source="stored")

    def view(self, indices: Sequence[int]) -> tuple[dict[str, NDArray[Any]], list[Sample]] | None:
        """Samples that are a ready batch, or a piece of one, as one array a column, nothing copied."""
        stored = self.index.samples[indices[0]]
        is_one = self.holds_batches and are_consecutive(indices) and self.index.samples[indices[-1]].key == stored.key
        if not is_one:
            return None
        pages = [self._ready_page(index) for index in indices]
        for index in indices:
            if not self._proven[index]:
                self._prove(index, {name: self._array(stored, name, index) for name in ARRAYS})
        arrays = {}
        for name in ARRAYS:
            window = self.files.window(stored.shard, *stored.members[f"{name}s.npy"])
            if window is None:
                return None
            batch = as_array(window, self._where(stored, f"{name}s.npy"))
            arrays[name] = batch[self._positions[indices[0]] : self._positions[indices[-1]] + 1]
        return arrays, pages

    @cached_property
    def holds_batches(self) -> bool:
        """Whether several ready samples share their arrays."""
        return self.is_ready and bool(self.index.samples) and f"{ARRAYS[0]}s.npy" in self.index.samples[0].members

    def _prove(self, index: int, arrays: dict[str, NDArray[Any]]) -> None:
        """The arrays are those that were stored; once a run."""
        if self._proven[index]:
            return
        if self._digests.pop(index, "") not in ("", arrays_digest(arrays)):
            self._pages.pop(index, None)
            stored = self.index.samples[index]
            first = next(iter(stored.members))
            raise DataError(f"{self._where(stored, first)}: not the arrays that were stored. Fetch or convert it anew")
        self._proven[index] = True

    @cached_property
    def _positions(self) -> list[int]:
        """The place of each sample within its batch, where shards hold batches."""
        positions: list[int] = []
        before = ""
        for sample in self.index.samples:
            positions.append(positions[-1] + 1 if sample.key == before else 0)
            before = sample.key
        return positions

    def _array(self, stored: StoredSample, name: str, index: int) -> NDArray[Any]:
        """One array of a ready sample: a view of the shard itself."""
        if f"{name}.npy" in stored.members:
            return as_array(self._member(stored, f"{name}.npy"), self._where(stored, f"{name}.npy"))
        batch = as_array(self._member(stored, f"{name}s.npy"), self._where(stored, f"{name}s.npy"))
        array: NDArray[Any] = batch[self._positions[index]]
        return array

    def annotation(self, index: int) -> dict[str, Any]:
        """The JSON of a sample."""
        stored = self.index.samples[index]
        key, batch = self._listed
        try:
            if key == stored.key:
                return batch[self._positions[index]]
            found: Any = json.loads(self._member(stored, "json").tobytes())
            if isinstance(found, list):
                self._listed = stored.key, found
                found = found[self._positions[index]]
            noted: dict[str, Any] = found
            return noted
        except (ValueError, IndexError) as error:
            raise AnnotationError(f"{self._where(stored, 'json')}: not JSON ({error}). Fetch the shard anew") from error

    def signature(self, index: int) -> Signature | None:
        """From the digest of the content: the same page has the same one wherever its shard lies."""
        stored = self.index.samples[index]
        number = int(stored.content or "0", 16)
        parts = [number >> 60 & _SIXTY_BITS, number & _SIXTY_BITS, number >> 120]
        return Signature(stored.members[image_extension(stored.members) or "json"][1], *parts)

    def annotation_digest(self, index: int) -> bytes:
        stored = self.index.samples[index]
        if stored.annotation:
            return bytes.fromhex(stored.annotation)
        annotation = self.annotation(index)
        return annotation_digest(read_polygons(annotation), read_claimed_size(annotation), self.annotated)

    def _member(self, stored: StoredSample, extension: str) -> NDArray[np.uint8]:
        try:
            start, size = stored.members[extension]
        except KeyError:
            raise DataError(f"{self._where(stored)} has no {extension}. Convert anew") from None
        data = self.files.read(stored.shard)
        if start + size > len(data):
            raise DataError(f"{self._where(stored, extension)}: beyond the end of the shard. Fetch or convert it anew")
        return data[start : start + size]

    def _where(self, stored: StoredSample, extension: str | None = None) -> str:
        offset = f" at offset {stored.members[extension][0]}" if extension in stored.members else ""
        return f"{self.urls[stored.shard]}: {stored.key} ({stored.filename}){offset}"


def _name(annotation: dict[str, Any], otherwise: str) -> str:
    """The name that a page had before it was stored, where it is one that stays where it is."""
    name = annotation.get("filename")
    harmless = isinstance(name, str) and not name.startswith("/") and ".." not in name and "\\" not in name
    return name if harmless and name else otherwise


def as_array(data: NDArray[np.uint8], where: str) -> NDArray[Any]:
    """A stored .npy as a view of its bytes; nothing in it can be executed."""
    try:
        # The header of version 1.0 ends at a multiple of 64 bytes, which its bytes 8 and 9 tell.
        length = 10 + int.from_bytes(data[8:10].tobytes(), "little")
        start, dtype, shape = _read_header(data[:length].tobytes())
        array: NDArray[Any] = data[start:].view(dtype).reshape(shape)
        return array
    except ValueError as error:
        raise DataError(f"{where}: not a plain .npy ({error}). Convert anew") from error


@lru_cache(maxsize=64)
def _read_header(head: bytes) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
    """Where the data starts, its type and shape; parsing takes as long as copying, and pages have the same header."""
    stream = BytesIO(head)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("not of version 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if fortran or dtype.hasobject:
        raise ValueError(f"dtype {dtype}")
    return stream.tell(), dtype, shape
