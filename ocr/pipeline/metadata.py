"""A sample as it is stored: one value of bytes in the cache, the same fields as JSON in shards.

A value is the length of the metadata, the metadata, and the dense page. Nothing is pickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import xxhash

from ocr.errors import AnnotationError
from ocr.formats.lines import shorten
from ocr.formats.native import page_size
from ocr.formats.validate import pack_words
from ocr.geometry.mend import MAX_VERTICES
from ocr.geometry.polygons import UNITS, Polygons
from ocr.pipeline.dense import DensePage
from ocr.pipeline.sample import NO_POLYGONS, POLYGON_COUNTS, Sample

FIELDS = ("annotated", "shape", "raw_size", "orientation", "polygon_frame", "recovered", *POLYGON_COUNTS)
"""Fields of a sample that JSON stores as they are; its pairs come back as lists."""
_SOUND: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("shape", "raw_size"), lambda size: _is_count(*size) and len(size) == 2),
    "annotated": lambda value: type(value) is bool,
    "orientation": lambda value: _is_count(value) and 1 <= value <= 8,
    **dict.fromkeys(("polygon_frame", "recovered"), lambda value: type(value) is str),
    **dict.fromkeys(POLYGON_COUNTS, lambda value: _is_count(value)),
}
_LENGTHS = struct.Struct("<III")
_LENGTH = struct.Struct("<I")


def pack_page(sample: Sample) -> bytes:
    """A sample at the cut, as a cache keeps it."""
    metadata = to_bytes(sample)
    page = sample.lazy if isinstance(sample.lazy, DensePage) else DensePage.pack(sample.unpacked().image)
    return b"".join([_LENGTH.pack(len(metadata)), metadata, page.data.data])


def unpack_page(value: bytes | memoryview, **entry: Any) -> Sample:
    """The sample that was packed; `entry` are its fields that are not in the value, such as its index and its name."""
    start = _LENGTH.size + _LENGTH.unpack_from(value)[0]
    page = DensePage(np.frombuffer(value, np.uint8, offset=start))
    return Sample(**entry, **_remembered(bytes(value[_LENGTH.size : start])), lazy=page)


def to_bytes(sample: Sample) -> bytes:
    """All of a sample at the cut except its arrays; nothing is pickled."""
    polygons = sample.polygons
    fields = _fields(sample)
    if any(text is not None for text in polygons.texts):
        fields["texts"] = polygons.texts
    if polygons.units.any():
        fields["units"] = polygons.units.tolist()
    fields |= _unseen(sample)
    # Half of a surrogate pair in a transcription is not valid UTF-8; escaped, it comes back as it was.
    text = json.dumps(fields).encode("ascii")
    arrays = (sample.inverse_matrix.astype(np.float64), polygons.vertices, polygons.offsets, polygons.ignore)
    lengths = _LENGTHS.pack(len(polygons), len(polygons.vertices), len(text))
    return b"".join([lengths, *(array.tobytes() for array in arrays), text])


def from_bytes(data: bytes) -> dict[str, Any]:
    """The fields of a sample that `to_bytes` stored."""
    count, vertices, text = _LENGTHS.unpack_from(data)
    ends = accumulate((_LENGTHS.size, 72, vertices * 8, (count + 1) * 4, count, text))
    matrix, points, offsets, ignore, fields = (data[a:b] for a, b in pairwise(ends))
    document = json.loads(fields.decode("ascii"))
    polygons = Polygons(
        np.frombuffer(points, np.float32).reshape(-1, 2),
        np.frombuffer(offsets, np.int32),
        np.frombuffer(ignore, np.bool_),
        tuple(document.get("texts", ())),
        np.array(document.get("units", ()), np.uint8),
    )
    inverse_matrix = np.frombuffer(matrix, np.float64).reshape(3, 3)
    listed = document.get("unseen")
    unseen = NO_POLYGONS
    if listed is not None:
        unseen = Polygons.pack(listed["polygons"], listed["ignore"], listed["texts"], listed.get("units", ()))
    return _read_fields(document) | {"inverse_matrix": inverse_matrix, "polygons": polygons, "unseen": unseen}


_remembered = lru_cache(maxsize=2048)(from_bytes)
"""Parsing takes 15 us a page, and every epoch has the same ones; they take at most 30 MB. Nothing in them changes."""


def to_json(sample: Sample) -> dict[str, Any]:
    """All of a sample at the cut except its arrays, as the JSON of a ready shard has it."""
    inverse_matrix = sample.inverse_matrix.astype(np.float64).reshape(-1).tolist()
    return source_to_json(sample) | _fields(sample) | _unseen(sample) | {"inverse_matrix": inverse_matrix}


def from_json(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a sample that `to_json` stored.

    KeyError, TypeError, ValueError or OverflowError if one is missing or wrong.
    """
    inverse_matrix = np.array(document["inverse_matrix"], dtype=np.float64).reshape(3, 3)
    if not np.isfinite(inverse_matrix).all():
        raise ValueError("inverse_matrix must be finite")
    fields = _read_fields(document)
    for name, is_sound in _SOUND.items():
        if not is_sound(fields[name]):
            raise ValueError(f"{name}={shorten(fields[name], 40)}")
    polygons = read_polygons(document)
    if np.diff(polygons.offsets).max(initial=0) > MAX_VERTICES:
        raise ValueError(f"a polygon of more than {MAX_VERTICES} vertices")
    unseen = read_polygons(document["unseen"]) if "unseen" in document else NO_POLYGONS
    return fields | {"inverse_matrix": inverse_matrix, "polygons": polygons, "unseen": unseen}


def fields_digest(fields: dict[str, Any]) -> str:
    """Digest of the fields that `from_json` returned; it changes with any of them."""
    hashed = xxhash.xxh3_64()
    shown, unseen = fields["polygons"], fields["unseen"]
    hashed.update(fields["inverse_matrix"].tobytes())
    for polygons in (shown, unseen):
        for array in (polygons.vertices, polygons.offsets, polygons.ignore):
            hashed.update(array.tobytes())
        hashed.update(polygons.units.tobytes() if polygons.units.any() else b"")
    hashed.update(repr((shown.texts, unseen.texts, [fields[name] for name in FIELDS])).encode(errors="surrogatepass"))
    return hashed.hexdigest()


def source_to_json(sample: Sample) -> dict[str, Any]:
    """What is known about a page before it is decoded, as the JSON of a raw shard has it."""
    return {
        "filename": sample.filename,
        "annotated": sample.annotated,
        **_listed(sample.polygons),
        "size": list(sample.claimed_size) if sample.claimed_size else None,
        "raw_size": list(sample.raw_size),
        "orientation": sample.orientation,
    }


def _listed(polygons: Polygons) -> dict[str, Any]:
    return {
        "polygons": [polygon.tolist() for polygon in polygons],
        "ignore": polygons.ignore.tolist(),
        "texts": list(polygons.texts),
        **({"units": polygons.units.tolist()} if polygons.units.any() else {}),
    }


def _unseen(sample: Sample) -> dict[str, Any]:
    return {"unseen": _listed(sample.unseen)} if len(sample.unseen) else {}


def read_polygons(document: dict[str, Any], where: str = "sample") -> Polygons:
    """The polygons in the JSON of a sample; AnnotationError, as for a folder's annotation, if one cannot be used."""
    polygons = document.get("polygons", [])
    count = len(polygons) if isinstance(polygons, list) else -1
    # Absent, null and [] leave the flags or texts of all polygons open.
    ignore: Any = document.get("ignore") or [False] * count
    texts: Any = document.get("texts") or [None] * count
    units: Any = document.get("units") or [0] * count
    if any(not isinstance(listed, list) or len(listed) != count for listed in (ignore, texts, units)):
        problem = f"{where}: polygons, ignore, texts and units must be lists of the same length. Convert again"
        raise AnnotationError(problem, setting="polygons", value=polygons, path=where)
    if any(type(unit) is not int or not 0 <= unit <= len(UNITS) for unit in units):
        problem = f"{where}: units must be 0, 1 (lines) or 2 (words). Convert again"
        raise AnnotationError(problem, setting="units", value=units, path=where)
    return pack_words(polygons, ignore, texts, lambda p: f"{where}: polygon {p}", units)


def read_claimed_size(document: dict[str, Any], where: str = "sample") -> tuple[int, int] | None:
    """The size that the annotation claims, in the JSON of a sample."""
    size = document.get("size")
    if not size:
        return None
    width, height = size if isinstance(size, list) and len(size) == 2 else (size, size)
    return page_size(width, height, where)


def _is_count(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 2**31 for value in values)


def _fields(sample: Sample) -> dict[str, Any]:
    return {name: getattr(sample, name) for name in FIELDS}


def _read_fields(document: dict[str, Any]) -> dict[str, Any]:
    stored = {name: document[name] for name in FIELDS}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
