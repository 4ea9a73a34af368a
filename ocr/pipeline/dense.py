"""dense: a page as it is kept, one value of bytes in the cache, image and JSON in a shard.

Its pixels take a third of the bytes of its JPEG file, without loss, and are read as fast as they are copied: the border
is left out, the rest is stored as differences to the row above, compressed with LZ4; a gray page has one plane instead
of three. benchmarks/tables/grid.py compares other ways. A value is the length of the metadata, the metadata, and the
dense page. Nothing is pickled.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from ocr.errors import AnnotationError, ConfigError, DataError
from ocr.formats.lines import shorten
from ocr.formats.native import page_size
from ocr.formats.validate import pack_words
from ocr.geometry.kernels.dense import content_window, from_differences, normalized_from_differences, to_differences
from ocr.geometry.mend import MAX_VERTICES
from ocr.geometry.polygons import UNITS, Polygons
from ocr.pipeline.sample import NO_POLYGONS, POLYGON_COUNTS, Array, LazyImage, Sample

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.pipeline.device import Normalize

_HEADER = struct.Struct("<IIIIIIB3B")
_MAX_EXPANSION = 255
_scratch = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class DensePage(LazyImage):
    """A page of bytes in dense form; it is unpacked where it is needed."""

    data: NDArray[np.uint8]
    """The header, then one LZ4 block."""

    @classmethod
    def pack(cls, image_hwc: NDArray[np.uint8]) -> DensePage:
        """The dense form of a page."""
        import cramjam

        if image_hwc.dtype != np.uint8:
            raise ConfigError(
                f"a page of {image_hwc.dtype} cannot be kept: pages are bytes in caches and ready shards. Set "
                "makes_floats in the stage that made them, or data.cache=off",
                setting="data.cache",
                value=str(image_hwc.dtype),
            )
        image_hwc = np.ascontiguousarray(image_hwc)
        border, (top, left, bottom, right) = _border_and_window(image_hwc)
        differences = _planes(3, bottom - top, right - left)
        planes = 1 if to_differences(image_hwc, top, left, differences) else 3
        block = cramjam.lz4.compress_block(differences[:planes].reshape(-1).data)
        header = _HEADER.pack(*image_hwc.shape[:2], top, left, bottom - top, right - left, planes, *border.tolist())
        return cls(np.frombuffer(header + bytes(block), dtype=np.uint8))

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the page."""
        if len(self.data) < _HEADER.size:
            raise _damaged(f"it has {len(self.data)} bytes", self.data)
        height, width = _HEADER.unpack_from(self.data.data)[:2]
        return width, height

    def check(self) -> None:
        """Raise DataError if the page cannot be unpacked; takes no more memory than what is compressed."""
        width, height = self.size
        self._differences((height, width))

    def write(self, out: Array, normalize: Normalize | None = None) -> None:
        """Unpack into (H, W, 3) bytes, or with `normalize` into (3, H, W) floats; nothing is allocated or copied."""
        differences, top, left, border = self._differences(out.shape[:2] if normalize is None else out.shape[1:])
        if normalize is None:
            from_differences(differences, top, left, border, out)
        else:
            normalized_from_differences(differences, top, left, border, *normalize.offset_and_factor, out)

    def _differences(self, page_hw: tuple[int, ...]) -> tuple[NDArray[np.uint8], int, int, NDArray[np.uint8]]:
        import cramjam

        try:
            height, width, top, left, rows, columns, planes, *border = _HEADER.unpack_from(self.data.data)
            if planes not in (1, 3) or top + rows > height or left + columns > width:
                raise ValueError("its header is wrong")
            # Before memory is allocated for them: a byte of LZ4 makes at most 255.
            if planes * rows * columns > _MAX_EXPANSION * len(self.data):
                raise ValueError("its header declares more pixels than its bytes can hold")
            if (height, width) != page_hw:
                raise ValueError(f"{width}x{height} instead of {page_hw[1]}x{page_hw[0]} pixels")
            differences = _planes(planes, rows, columns)
            found = cramjam.lz4.decompress_block_into(self.data[_HEADER.size :].data, differences.reshape(-1).data)
            if found != differences.size:
                raise ValueError(f"{found} bytes of {differences.size}")
        except (struct.error, ValueError, cramjam.DecompressionError) as error:
            raise _damaged(str(error), self.data) from error
        return differences, top, left, np.array(border, dtype=np.uint8)


def _damaged(reason: str, data: NDArray[np.uint8]) -> DataError:
    """The error for a dense page of these bytes; whoever stored it knows where they are."""
    return DataError(f"a dense page is damaged: {reason}. Rebuild the cache or the shard", value=len(data))


def codec_version() -> str:
    """The library that compresses, and its version."""
    return f"cramjam {version('cramjam')}"


def _border_and_window(image_hwc: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], tuple[int, int, int, int]]:
    """The colour of the border and what it surrounds: a page in one corner has it at the opposite one."""
    if not image_hwc.size:
        return np.zeros(3, dtype=np.uint8), (0, 0, 0, 0)
    corners = image_hwc[0, 0].copy(), image_hwc[-1, -1].copy()
    windows = [
        (border, content_window(image_hwc, border)) for border in corners[: 1 + (corners[0] != corners[1]).any()]
    ]
    return min(windows, key=lambda found: (found[1][2] - found[1][0]) * (found[1][3] - found[1][1]))


def _planes(planes: int, rows: int, columns: int) -> NDArray[np.uint8]:
    """Memory of this thread for the differences of one page."""
    size = planes * rows * columns
    memory = getattr(_scratch, "memory", None)
    if memory is None or len(memory) < size:
        memory = _scratch.memory = np.empty(size, dtype=np.uint8)
    return memory[:size].reshape(planes, rows, columns)


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
