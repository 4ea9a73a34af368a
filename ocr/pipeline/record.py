"""A sample at the cut as plain arrays and a few bytes, and back; nothing is pickled."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from ocr.geometry.polygons import Polygons
from ocr.pipeline.cut import Cut
from ocr.pipeline.sample import NO_IMAGE, Maps, Sample

_SIZES = struct.Struct("<III")


class Record(NamedTuple):
    """What is stored of a sample: an array a column, and notes of everything small."""

    arrays: dict[str, NDArray[Any]]
    notes: bytes

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the page or, without it, of its maps."""
        first = next(iter(self.arrays.values()))
        height, width = first.shape[:2] if is_interleaved(first) else first.shape[-2:]
        return int(height), int(width)

    def parts(self) -> Iterator[NDArray[np.uint8]]:
        """All bytes, in the order in which they are stored."""
        for array in self.arrays.values():
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield np.frombuffer(self.notes, dtype=np.uint8)

    def checksum(self) -> int:
        """Tells a flipped bit; at the speed of memory, so that it can be asked for every page of a run."""
        hashed = xxhash.xxh3_64()
        for part in self.parts():
            hashed.update(part.data)
        # Never 0, which stands for "not known", and within what a signed number holds.
        return hashed.intdigest() >> 1 | 1


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Tells a flipped bit in the arrays of a sample, in their order."""
    hashed = xxhash.xxh3_64()
    for array in arrays.values():
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def is_interleaved(array: NDArray[Any]) -> bool:
    """Whether it is a page of bytes, (H, W, 3); pages of floats are (3, H, W)."""
    return array.ndim == 3 and array.dtype == np.uint8


def to_record(sample: Sample, cut: Cut) -> Record:
    """The stored form of a sample; a float page is kept plane by plane, as the batch wants it."""
    arrays: dict[str, NDArray[Any]] = {}
    if cut.page:
        arrays["image"] = sample.image if is_interleaved(sample.image) else sample.image.transpose(2, 0, 1)
    if cut.maps:
        assert sample.maps is not None
        arrays |= sample.maps._asdict()
    return Record(arrays, _write_notes(sample))


def to_sample(record: Record, entry: Sample) -> Sample:
    """The sample that was stored; `entry` brings what is not: its place in the dataset, its name and path."""
    image = record.arrays.get("image", NO_IMAGE)
    maps = Maps(*(record.arrays[name] for name in Maps._fields)) if "prob_map" in record.arrays else None
    page = image if is_interleaved(image) else image.transpose(1, 2, 0)
    return replace(entry, **read_notes(record.notes), image=page, maps=maps, map_source="cached" if maps else "")


def _write_notes(sample: Sample) -> bytes:
    polygons = sample.polygons
    words: dict[str, Any] = {
        "shape": sample.shape,
        "raw_size": sample.raw_size,
        "orientation": sample.orientation,
        "polygon_frame": sample.polygon_frame,
        "recovered": sample.recovered,
        "dropped_polygons": sample.dropped_polygons,
    }
    if any(text is not None for text in polygons.texts):
        words["texts"] = polygons.texts
    # Half of a surrogate pair in a transcription is no valid UTF-8; escaped it comes back as it was.
    text = json.dumps(words).encode("ascii")
    arrays = (sample.inverse_matrix.astype(np.float64), polygons.vertices, polygons.offsets, polygons.ignore)
    sizes = _SIZES.pack(len(polygons), len(polygons.vertices), len(text))
    return b"".join([sizes, *(array.tobytes() for array in arrays), text])


def read_notes(notes: bytes) -> dict[str, Any]:
    """The fields of a sample that are neither page nor maps."""
    count, vertices, text = _SIZES.unpack_from(notes)
    ends = accumulate((_SIZES.size, 72, vertices * 8, (count + 1) * 4, count, text))
    matrix, points, offsets, ignore, words = (notes[a:b] for a, b in pairwise(ends))
    fields: dict[str, Any] = json.loads(words)
    texts = tuple(fields.pop("texts", ()))
    fields["inverse_matrix"] = np.frombuffer(matrix, np.float64).reshape(3, 3)
    fields["polygons"] = Polygons(
        np.frombuffer(points, np.float32).reshape(-1, 2),
        np.frombuffer(offsets, np.int32),
        np.frombuffer(ignore, np.bool_),
        texts,
    )
    return fields | {name: tuple(fields[name]) for name in ("shape", "raw_size")}
