"""A sample at the cut as plain arrays and the bytes of its metadata, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from ocr.pipeline import metadata
from ocr.pipeline.cut import Cut
from ocr.pipeline.dense import DensePage
from ocr.pipeline.sample import NO_IMAGE, Maps, Sample


class Record(NamedTuple):
    """What is stored of a sample: one array per column, and as metadata everything small."""

    arrays: dict[str, NDArray[Any]]
    metadata: bytes

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the page or, without it, of its maps."""
        first = next(iter(self.arrays.values()))
        if first.ndim == 1:
            width, height = DensePage(first).size
            return height, width
        height, width = first.shape[:2] if is_interleaved(first) else first.shape[-2:]
        return int(height), int(width)

    def parts(self) -> Iterator[NDArray[np.uint8]]:
        """All bytes, in the order in which they are stored."""
        for array in self.arrays.values():
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield np.frombuffer(self.metadata, dtype=np.uint8)

    def checksum(self) -> int:
        """Changes with any bit; computed at the speed of memory, so that a run can afford it for every page."""
        hashed = xxhash.xxh3_64()
        for part in self.parts():
            hashed.update(part.data)
        # Never 0, which means "unknown", and within the range of a signed integer.
        return hashed.intdigest() >> 1 | 1


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Digest of the arrays of a sample, in their order; it changes with any bit."""
    hashed = xxhash.xxh3_64()
    for array in arrays.values():
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def is_interleaved(array: NDArray[Any]) -> bool:
    """Whether it is a page of bytes, (H, W, 3); pages of floats are (3, H, W), and dense ones (N,)."""
    return array.ndim == 3 and array.dtype == np.uint8


def to_record(sample: Sample, cut: Cut) -> Record:
    """The stored form of a sample; a float page is stored plane by plane, as in the batch."""
    arrays: dict[str, NDArray[Any]] = {}
    if cut.dense:
        arrays["image"] = (sample.dense or DensePage.pack(sample.image)).data
    elif cut.page:
        arrays["image"] = sample.image if is_interleaved(sample.image) else sample.image.transpose(2, 0, 1)
    if cut.maps:
        assert sample.maps is not None
        arrays |= sample.maps._asdict()
    return Record(arrays, metadata.to_bytes(sample))


def to_sample(record: Record, entry: Sample, cached: str = "") -> Sample:
    """The sample that was stored; `entry` adds what is not stored: its index in the dataset, its name and path."""
    arrays = array_fields(record.arrays)
    map_source = "cached" if arrays["maps"] else ""
    return replace(entry, **metadata.from_bytes(record.metadata), **arrays, map_source=map_source, cached=cached)


def array_fields(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The fields of a sample that its stored arrays are: page, maps or both."""
    image = arrays.get("image", NO_IMAGE)
    if image.ndim == 1:
        dense = DensePage(image)
        return {"dense": dense, "reduced_from": dense.size, "maps": None}
    page = image if is_interleaved(image) else image.transpose(1, 2, 0)
    maps = Maps(*(arrays[name] for name in Maps._fields)) if "prob_map" in arrays else None
    return {"image": page, "maps": maps}
