"""All polygons of a page, packed into three arrays, so that moving them is one matrix product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ocr.errors import ConfigError

UNITS = ("lines", "words")
"""What a polygon surrounds; in `Polygons.units` 1 and 2, and 0 where the labels do not say."""
# A polygon under half a square pixel covers no pixel centre reliably: nothing can be learnt from it.
MIN_AREA = 0.5
_UNSAID = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Polygons:
    """Polygon p is `vertices[offsets[p]:offsets[p + 1]]`; `ignore[p]` marks text that is not learnt.

    `units[p]` is 1 for a line, 2 for a word, and 0 where the labels do not say.

    >>> boxes = Polygons.pack([[[0, 0], [4, 0], [4, 2], [0, 2]]])
    >>> len(boxes), boxes.areas.tolist()
    (1, [8.0])
    """

    vertices: NDArray[np.float32]
    offsets: NDArray[np.int32]
    ignore: NDArray[np.bool_]
    texts: tuple[str | None, ...] = field(default=())
    units: NDArray[np.uint8] = field(default_factory=lambda: _UNSAID)

    def __post_init__(self) -> None:
        count = len(self.offsets) - 1
        if self.vertices.ndim != 2 or self.vertices.shape[1] != 2 or self.vertices.dtype != np.float32:
            raise ValueError(f"vertices must be (V, 2) float32, not {self.vertices.shape} {self.vertices.dtype}")
        if count < 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.vertices) or len(self.ignore) != count:
            raise ValueError("offsets must run from 0 to the number of vertices, with one ignore flag a polygon")
        if count and int((self.offsets[1:] - self.offsets[:-1]).min()) < 3:
            raise ValueError("a polygon needs at least three vertices")
        if not self.texts:
            object.__setattr__(self, "texts", (None,) * count)
        elif len(self.texts) != count:
            raise ValueError(f"{len(self.texts)} texts for {count} polygons")
        if not len(self.units):
            object.__setattr__(self, "units", np.zeros(count, dtype=np.uint8))
        elif len(self.units) != count or self.units.dtype != np.uint8:
            raise ValueError(f"units must be ({count},) uint8, not {self.units.shape} {self.units.dtype}")

    @classmethod
    def pack(
        cls,
        polygons: Iterable[ArrayLike],
        ignore: Sequence[bool] | NDArray[np.bool_] | None = None,
        texts: Sequence[str | None] = (),
        units: Sequence[int] | NDArray[np.uint8] = (),
    ) -> Polygons:
        """Pack a list of (n, 2) or (1, n, 2) point lists."""
        points = [np.asarray(polygon, dtype=np.float32).reshape(-1, 2) for polygon in polygons]
        offsets = np.zeros(len(points) + 1, dtype=np.int32)
        np.cumsum([len(polygon) for polygon in points], out=offsets[1:])
        vertices = np.concatenate(points) if points else np.zeros((0, 2), dtype=np.float32)
        flags = np.zeros(len(points), dtype=np.bool_) if ignore is None else np.asarray(ignore, dtype=np.bool_)
        return cls(vertices, offsets, flags, tuple(texts), np.asarray(units, dtype=np.uint8))

    def __len__(self) -> int:
        return len(self.ignore)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        """Views of each polygon's vertices, (n, 2)."""
        bounds = self.offsets.tolist()
        return (self.vertices[start:end] for start, end in pairwise(bounds))

    def moved(self, matrix: NDArray[np.float64]) -> Polygons:
        """The same polygons under a 3x3 matrix."""
        return Polygons(move_points(self.vertices, matrix), self.offsets, self.ignore, self.texts, self.units)

    def select(self, keep: NDArray[np.bool_]) -> Polygons:
        """Only the polygons where `keep` is true."""
        if keep.all():
            return self
        vertex_keep = np.repeat(keep, np.diff(self.offsets))
        offsets = np.zeros(int(keep.sum()) + 1, dtype=np.int32)
        np.cumsum(np.diff(self.offsets)[keep], out=offsets[1:])
        texts = tuple(text for text, kept in zip(self.texts, keep.tolist(), strict=True) if kept)
        return Polygons(self.vertices[vertex_keep], offsets, self.ignore[keep], texts, self.units[keep])

    def of_unit(self, unit: str, unsaid: bool = False) -> Polygons:
        """Only the lines, or only the words; with `unsaid`, those too whose labels do not say."""
        code = UNITS.index(unit) + 1
        return self.select((self.units == code) | (self.units == 0 if unsaid else False))

    def followed_by(self, others: Polygons) -> Polygons:
        """These polygons, followed by others."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + others.offsets[1:]])
        ignore = np.concatenate([self.ignore, others.ignore])
        vertices = np.concatenate([self.vertices, others.vertices])
        units = np.concatenate([self.units, others.units])
        return Polygons(vertices, offsets, ignore, self.texts + others.texts, units)

    @property
    def areas(self) -> NDArray[np.float64]:
        """Area of each polygon (shoelace formula, so overlapping loops cancel)."""
        if not len(self):
            return np.zeros(0)
        start, end = self.edges()
        cross = start[:, 0] * end[:, 1] - start[:, 1] * end[:, 0]
        return np.abs(np.add.reduceat(cross, self.offsets[:-1])) / 2

    @property
    def perimeters(self) -> NDArray[np.float64]:
        """Length of each closed outline."""
        if not len(self):
            return np.zeros(0)
        start, end = self.edges()
        return np.add.reduceat(np.hypot(*(end - start).T), self.offsets[:-1])

    @property
    def bounds(self) -> NDArray[np.float32]:
        """(P, 4): smallest x, smallest y, largest x, largest y."""
        if not len(self):
            return np.zeros((0, 4), dtype=np.float32)
        starts = self.offsets[:-1]
        low = np.minimum.reduceat(self.vertices, starts, axis=0)
        high = np.maximum.reduceat(self.vertices, starts, axis=0)
        return np.concatenate([low, high], axis=1)

    @property
    def solid(self) -> NDArray[np.bool_]:
        """Which polygons have an area at all."""
        return self.areas >= MIN_AREA

    def on_page(self, width: int, height: int) -> NDArray[np.bool_]:
        """Which polygons reach into a page of this size."""
        bounds = self.bounds
        reaches: NDArray[np.bool_] = np.all((bounds[:, :2] < (width, height)) & (bounds[:, 2:] >= 0), axis=1)
        return reaches

    def edges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The two ends of every edge, in float64, where products of float32 coordinates are exact."""
        points = self.vertices.astype(np.float64)
        following = np.arange(1, len(points) + 1)
        following[self.offsets[1:] - 1] = self.offsets[:-1]
        return points, points[following]


def check_units(setting: str, units: Sequence[str] | None) -> tuple[str, ...]:
    """One unit or both as a tuple, in their order; ConfigError otherwise."""
    units = units or ()
    if isinstance(units, str) or any(unit not in UNITS for unit in units) or len(set(units)) < len(units):
        problem = f"{setting}={units!r} must be a list of lines, words or both, such as [lines, words]"
        raise ConfigError(problem, setting=setting, value=units)
    return tuple(unit for unit in UNITS if unit in units)


def move_points(points: NDArray[np.float32], matrix: NDArray[np.float64]) -> NDArray[np.float32]:
    """Apply a 3x3 matrix to (V, 2) points, in float64, dividing only for a perspective."""
    moved = points @ matrix[:2, :2].T + matrix[:2, 2]
    if matrix[2, 0] != 0 or matrix[2, 1] != 0 or matrix[2, 2] != 1:
        moved = moved / (points @ matrix[2, :2] + matrix[2, 2])[:, None]
    return moved.astype(np.float32)
