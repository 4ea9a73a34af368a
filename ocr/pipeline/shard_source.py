"""source: tar shards, of this machine or an object store, become the samples that their folder would give."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import AnnotationError, ConfigError, DataError, ImageError
from ocr.formats.shards import RAW, ShardIndex, StoredSample, image_extension, index_name, scan_tar
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
        self.index, self.urls, self.storage = index, list(urls), storage
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
        stored = self.index.samples[index]
        extension = image_extension(stored.members)
        if extension is None:
            raise ImageError(f"{self._where(stored)}: no image among its members {', '.join(stored.members)}")
        encoded = self._member(stored, extension).tobytes()
        if stored.content and content_digest(encoded).hex() != stored.content:
            raise ImageError(f"{self._where(stored, extension)}: not the bytes that were stored. Fetch the shard anew")
        annotation = self.annotation(index)
        claimed = tuple(annotation["size"]) if annotation.get("size") else None
        polygons = pack(annotation)
        if stored.annotation and annotation_digest(polygons, claimed, self.annotated).hex() != stored.annotation:
            raise AnnotationError(f"{self._where(stored, 'json')}: not the annotation that was stored")
        return replace(self.entry(index), polygons=polygons, claimed_size=claimed, encoded=encoded)

    def annotation(self, index: int) -> dict[str, Any]:
        """The JSON of a sample."""
        stored = self.index.samples[index]
        try:
            found: dict[str, Any] = json.loads(self._member(stored, "json").tobytes())
            return found
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
        page = self.read(index)
        return annotation_digest(page.polygons, page.claimed_size, self.annotated)

    def arrays(self, index: int) -> dict[str, NDArray[Any]]:
        """The arrays of a ready sample: views of the shard itself."""
        stored = self.index.samples[index]
        found = {}
        for name in ("image", *Maps._fields):
            if f"{name}.npy" in stored.members:
                found[name] = as_array(self._member(stored, f"{name}.npy"), self._where(stored, f"{name}.npy"))
            else:
                plural = f"{name}s.npy"
                batch = as_array(self._member(stored, plural), self._where(stored, plural))
                found[name] = batch[int(self.index.samples[index].key_position)]  # type: ignore[attr-defined]
        return found

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


def pack(annotation: dict[str, Any]) -> Polygons:
    """The polygons of a sample's JSON."""
    return Polygons.pack(annotation["polygons"], annotation["ignore"], annotation["texts"])


def as_array(data: NDArray[np.uint8], where: str) -> NDArray[Any]:
    """A stored .npy as a view of its bytes; nothing in it can be executed."""
    from io import BytesIO

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


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """Where fetched shards are kept and how large they may get."""

    folder: Path
    max_bytes: int | None = None
    tries: int = 5


def open_shards(tar_path: Any, settings: ShardSettings) -> ShardSource:
    """Find the shards and their index; local shards without one are scanned."""
    urls = expand(tar_path)
    storage = Storage(settings.folder, settings.max_bytes, settings.tries)
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
    from ocr.formats.shards import Shard

    shards, samples = [], []
    for number, path in enumerate(paths):
        with path.open("rb") as stream:
            found = [
                StoredSample(key, f"{key}.{image_extension(members) or 'npy'}", number, members, "", "")
                for key, members in scan_tar(stream, str(path))
            ]
        shards.append(Shard(path.name, path.stat().st_size, "", len(found)))
        samples += found
    kind = RAW if all(image_extension(sample.members) for sample in samples) else "ready"
    return ShardIndex("", kind, True, "", "", tuple(shards), tuple(samples))
