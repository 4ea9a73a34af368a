"""source: tar shards, of this machine or an object store, become the samples that their folder would give."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import AnnotationError, ConfigError, DataError, ImageError
from ocr.formats.shards import (
    KEY_DIGITS,
    RAW,
    READY,
    Shard,
    ShardIndex,
    StoredSample,
    image_extension,
    index_name,
    scan_tar,
)
from ocr.formats.storage import Storage, expand, is_remote
from ocr.geometry.polygons import Polygons
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.layout import Signature
from ocr.pipeline.mapping import map_file
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.source import NO_POLYGONS, annotation_digest

_SIXTY_BITS = (1 << 60) - 1


class ShardSource:
    """The pages of tar shards with an index, in the order of their source, read at random."""

    def __init__(self, index: ShardIndex, urls: Sequence[str], storage: Storage) -> None:
        samples = index.samples
        if all(len(sample.key) == KEY_DIGITS and sample.key.isdigit() for sample in samples):
            # Our own keys are numbers in the order of the source, whatever order the shards are in.
            samples = tuple(sorted(samples, key=lambda sample: sample.key))
        self.index = replace(index, samples=samples)
        self.urls, self.storage = list(urls), storage
        self.skipped: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        self._mapped: dict[int, NDArray[np.uint8]] = {}
        self._locks = [threading.Lock() for _ in self.urls]

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("index", "urls", "storage", "skipped")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def __len__(self) -> int:
        return len(self.index.samples)

    @property
    def place(self) -> str:
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
        claimed, polygons = _size(annotation), pack(annotation)
        if stored.annotation and annotation_digest(polygons, claimed, self.annotated).hex() != stored.annotation:
            raise AnnotationError(f"{self._where(stored, 'json')}: not the annotation that was stored")
        return replace(self.entry(index), polygons=polygons, claimed_size=claimed, encoded=encoded)

    def _read_ready(self, index: int) -> Sample:
        stored, noted = self.index.samples[index], self.annotation(index)
        arrays = {name: self._array(stored, name, index) for name in ("image", *Maps._fields)}
        return replace(
            self.entry(index),
            polygons=pack(noted),
            image=arrays.pop("image"),
            maps=Maps(**arrays),
            map_source="stored",
            inverse_matrix=np.array(noted["inverse_matrix"], dtype=np.float64).reshape(3, 3),
            shape=tuple(noted["shape"]),
            raw_size=tuple(noted["raw_size"]),
            **{name: noted[name] for name in ("orientation", "polygon_frame", "recovered", "dropped_polygons")},
        )

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
        try:
            found: Any = json.loads(self._member(stored, "json").tobytes())
            noted: dict[str, Any] = found[self._positions[index]] if isinstance(found, list) else found
            return noted
        except ValueError as error:
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
        return annotation_digest(pack(annotation), _size(annotation), self.annotated)

    def _member(self, stored: StoredSample, extension: str) -> NDArray[np.uint8]:
        try:
            start, size = stored.members[extension]
        except KeyError:
            raise DataError(f"{self._where(stored)} has no {extension}. Convert anew") from None
        data = self._shard(stored.shard)
        if start + size > len(data):
            raise DataError(f"{self._where(stored, extension)}: beyond the end of the shard. Fetch or convert it anew")
        return data[start : start + size]

    def _shard(self, number: int) -> NDArray[np.uint8]:
        found = self._mapped.get(number)
        if found is not None:
            return found
        with self._locks[number]:
            if number not in self._mapped:
                known = self.index.shards[number]
                path = self.storage.local(self.urls[number], known.bytes or None, known.sha256 or None)
                with path.open("rb") as stream:
                    self._mapped[number] = map_file(stream.fileno())
        return self._mapped[number]

    def _where(self, stored: StoredSample, extension: str | None = None) -> str:
        offset = f" at offset {stored.members[extension][0]}" if extension in stored.members else ""
        return f"{self.urls[stored.shard]}: {stored.key} ({stored.filename}){offset}"


def _size(annotation: dict[str, Any]) -> tuple[int, int] | None:
    size = annotation.get("size")
    return (int(size[0]), int(size[1])) if size else None


def pack(annotation: dict[str, Any]) -> Polygons:
    """The polygons of a sample's JSON."""
    polygons = annotation.get("polygons", [])
    return Polygons.pack(polygons, annotation.get("ignore"), annotation.get("texts", ()))


def as_array(data: NDArray[np.uint8], where: str) -> NDArray[Any]:
    """A stored .npy as a view of its bytes; nothing in it can be executed."""
    head = BytesIO(data[:4096].tobytes())
    try:
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(head)
        if fortran or dtype.hasobject:
            raise ValueError(f"dtype {dtype}")
        array: NDArray[Any] = data[head.tell() :].view(dtype).reshape(shape)
        return array
    except ValueError as error:
        raise DataError(f"{where}: not a plain .npy ({error}). Convert anew") from error


def open_shards(tar_path: Any, storage: Storage) -> ShardSource:
    """Find the shards and their index; local shards without one are scanned."""
    urls = expand(tar_path)
    base, _, name = urls[0].rpartition("/")
    place = f"{base}/{index_name(name)}" if base else index_name(name)
    text = storage.read(place)
    if text is None:
        if any(is_remote(url) for url in urls):
            raise ConfigError(f"{place} is not there: without an index remote shards can only be streamed")
        return ShardSource(scan_index([Path(url) for url in urls]), urls, storage)
    index = ShardIndex.from_json(text, place)
    return ShardSource(_select(index, urls, place), urls, storage)


def _select(index: ShardIndex, urls: Sequence[str], place: str) -> ShardIndex:
    """The part of an index that is about these shards."""
    numbers = {shard.name: number for number, shard in enumerate(index.shards)}
    wanted = []
    for url in urls:
        name = url.rpartition("/")[2]
        if name not in numbers:
            raise ConfigError(f"{url} is not in {place}. Convert anew, or name the shards of one conversion")
        wanted.append(numbers[name])
    if wanted == list(range(len(index.shards))):
        return index
    renumbered = {number: position for position, number in enumerate(wanted)}
    samples = tuple(replace(s, shard=renumbered[s.shard]) for s in index.samples if s.shard in renumbered)
    return replace(index, shards=tuple(index.shards[number] for number in wanted), samples=samples)


def scan_index(paths: Sequence[Path]) -> ShardIndex:
    """What the shards themselves tell, where no index lies beside them."""
    shards, samples = [], []
    for number, path in enumerate(paths):
        with path.open("rb") as stream:
            found = [
                StoredSample(key, f"{key}.{image_extension(members) or 'npy'}", number, members, "", "")
                for key, members in scan_tar(stream, str(path))
            ]
        shards.append(Shard(path.name, path.stat().st_size, "", len(found)))
        samples += found
    kind = RAW if all(image_extension(sample.members) for sample in samples) else READY
    return ShardIndex("", kind, True, "", "", tuple(shards), tuple(samples))
