"""The members of the samples of shards: bytes, JSON and arrays, read in place."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import AnnotationError, DataError
from ocr.formats.npy_header import read_npy_header
from ocr.pipeline.metadata import ARRAYS
from ocr.pipeline.page_rows import NO_POLYGONS
from ocr.pipeline.sample import Sample
from ocr.shards.files import ShardFiles
from ocr.shards.index import ShardIndex


class Members:
    """Reads the members of samples, of which several may share one batch."""

    def __init__(self, index: ShardIndex, files: ShardFiles) -> None:
        self._samples, self._annotated, self._files = index.samples, index.annotated, files
        self._has_names = bool(index.source)
        self._batch_json: tuple[str, list[Any]] = ("", [])

    @cached_property
    def are_batches(self) -> bool:
        """Whether several samples share their arrays."""
        return bool(self._samples) and f"{ARRAYS[0]}s.npy" in self._samples[0].members

    def entry(self, index: int) -> Sample:
        """What the index says about a sample."""
        stored = self._samples[index]
        return Sample(index, stored.filename, self.path(index), NO_POLYGONS, self._annotated)

    def named(self, index: int, document: dict[str, Any]) -> Sample:
        """The entry of a sample whose JSON has been read: without an index, only the JSON has its file name."""
        entry = self.entry(index)
        return entry if self._has_names else replace(entry, filename=_name(document, entry.filename))

    def data(self, index: int, extension: str) -> NDArray[np.uint8]:
        """The bytes of a member: a view of the shard itself."""
        stored = self._samples[index]
        try:
            start, size = stored.members[extension]
        except KeyError:
            problem = f"{self.where(index)} has no {extension}. Convert again"
            raise DataError(problem, value=extension, path=self.path(index)) from None
        data = self._files.read(stored.shard)
        if start + size > len(data):
            problem = f"{self.where(index, extension)}: beyond the end of the shard. Fetch or convert it again"
            raise DataError(problem, value=start + size, path=self.path(index))
        return data[start : start + size]

    def json(self, index: int) -> dict[str, Any]:
        """The JSON of a sample."""
        key = self._samples[index].key
        remembered, batch = self._batch_json
        try:
            document: Any = batch if remembered == key else json.loads(self.data(index, "json").tobytes())
            if isinstance(document, list):
                self._batch_json = key, document
                document = document[self._samples.position(index)]
        except (ValueError, IndexError, RecursionError) as error:
            where = self.where(index, "json")
            problem = f"{where}: not JSON ({error}). Fetch the shard again"
            raise AnnotationError(problem, path=self.path(index)) from error
        if not isinstance(document, dict):
            problem = f"{self.where(index, 'json')}: holds no JSON object. Convert again"
            raise AnnotationError(problem, value=document, path=self.path(index))
        return document

    def arrays(self, index: int) -> dict[str, NDArray[Any]]:
        """The arrays of a ready sample, of a dense one the page alone: views of the shard itself."""
        image = self._array(index, ARRAYS[0])
        names = ARRAYS[:1] if image.ndim == 1 and f"{ARRAYS[0]}.npy" in self._samples[index].members else ARRAYS
        return {name: image if name == ARRAYS[0] else self._array(index, name) for name in names}

    def _array(self, index: int, name: str) -> NDArray[Any]:
        if f"{name}.npy" in self._samples[index].members:
            return as_array(self.data(index, f"{name}.npy"), self.where(index, f"{name}.npy"), self.path(index))
        where = self.where(index, f"{name}s.npy")
        batch = as_array(self.data(index, f"{name}s.npy"), where, self.path(index))
        position = self._samples.position(index)
        if not batch.ndim or position >= len(batch):
            problem = f"{where}: fewer arrays than samples, {batch.shape}. Convert again"
            raise DataError(problem, value=batch.shape, path=self.path(index))
        array: NDArray[Any] = batch[position]
        return array

    def windows(self, first: int, last: int) -> dict[str, NDArray[Any]] | None:
        """The arrays of samples of one batch as private memory that may be written; None if that is not possible."""
        stored, arrays = self._samples[first], {}
        for name in ARRAYS:
            # A sample of its own may be among batches.
            member = stored.members.get(f"{name}s.npy")
            window = None if member is None else self._files.window(stored.shard, *member)
            if window is None:
                return None
            batch = as_array(window, self.where(first, f"{name}s.npy"), self.path(first))
            arrays[name] = batch[self._samples.position(first) : self._samples.position(last) + 1]
        return arrays

    def path(self, index: int) -> str:
        """Shard and file name of a page, for the fields of errors."""
        stored = self._samples[index]
        return f"{self._files.urls[stored.shard]}/{stored.filename}"

    def where(self, index: int, *extensions: str) -> str:
        """Shard, key, file name and offset of the first of these members that there is, for messages."""
        stored = self._samples[index]
        offset = next((f" at offset {stored.members[name][0]}" for name in extensions if name in stored.members), "")
        return f"{self._files.urls[stored.shard]}: {stored.key} ({stored.filename}){offset}"


def count_pages(members: dict[str, tuple[int, int]], data: NDArray[np.uint8], url: str, key: str) -> int:
    """How many pages the members of one key hold: a ready batch holds one per entry of its JSON."""
    if f"{ARRAYS[0]}s.npy" not in members:
        return 1
    start, size = members.get("json", (0, 0))
    try:
        document = json.loads(data[start : start + size].tobytes())
        if not isinstance(document, list):
            raise ValueError("a list is expected")
    except (ValueError, RecursionError) as error:
        problem = f"{url}: {key}: not the JSON of a batch ({error}). Fetch or convert it again"
        raise AnnotationError(problem, value=key, path=url) from error
    return len(document)


def _name(document: dict[str, Any], otherwise: str) -> str:
    """The file name that a page had before it was stored, if it does not lead out of its folder."""
    name = document.get("filename")
    is_safe = isinstance(name, str) and not name.startswith("/") and ".." not in name and "\\" not in name
    return name if is_safe and name else otherwise


def as_array(data: NDArray[np.uint8], where: str, path: str | None = None) -> NDArray[Any]:
    """A stored .npy as a view of its bytes; nothing in it can be executed."""
    try:
        # Bytes 8 and 9 hold the length of a header of version 1.0, which ends at a multiple of 64 bytes.
        length = 10 + int.from_bytes(data[8:10].tobytes(), "little")
        start, dtype, shape = _read_header(data[:length].tobytes())
        array: NDArray[Any] = data[start:].view(dtype).reshape(shape)
        return array
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DataError(f"{where}: not a plain .npy ({error}). Convert again", path=path) from error


@lru_cache(maxsize=64)
def _read_header(head: bytes) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
    """Offset of the data, its type and shape; pages share a header, and parsing it takes as long as copying a page."""
    stream = BytesIO(head)
    shape, dtype = read_npy_header(stream)
    return stream.tell(), dtype, shape
