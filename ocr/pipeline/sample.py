"""What flows through the stages: one frozen `Sample`, from encoded bytes to page, polygons and maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.polygons import Polygons

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.pipeline.device import Normalize

Array = NDArray[Any]
NO_IMAGE = np.zeros((0, 0, 3), dtype=np.uint8)
NO_POLYGONS = Polygons.pack([])
UNMOVED = np.eye(3)
UNMOVED.flags.writeable = False
STRIDE = 32
"""Sides of a batch are multiples of this: the detector's coarsest features have one pixel for so many."""
POLYGON_COUNTS = ("dropped_polygons", "crossed_polygons", "simplified_polygons")
"""Fields of a sample that count polygons which are not as annotated."""

Maps = dict[str, Array]
"""The target maps of a page, each (H, W), by their names in `ocr.pipeline.targets.MAPS`."""


def rounded_up(height: int, width: int) -> tuple[int, int]:
    """The size of the smallest batch that holds a page.

    >>> rounded_up(640, 321)
    (640, 352)
    """
    return -(-height // STRIDE) * STRIDE, -(-width // STRIDE) * STRIDE


class LazyImage(ABC):
    """Pixels that are made where they are needed: in the slot of a batch, without a page in between."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """(width, height)"""

    @abstractmethod
    def write(self, out: Array, normalize: Normalize | None = None) -> None:
        """Make the pixels into (H, W, 3) bytes, or with `normalize` into (3, H, W) floats."""

    def pixels(self) -> NDArray[np.uint8]:
        """The pixels, (H, W, 3), made now."""
        width, height = self.size
        out = np.empty((height, width, 3), dtype=np.uint8)
        self.write(out)
        return out


class PageView(NamedTuple):
    """What a random stage may look at while it draws: everything but the pixels, which may be on another device."""

    polygons: Polygons
    width: int
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One page on its way from the source to the batch."""

    index: int
    filename: str
    path: str
    polygons: Polygons
    annotated: bool = True
    claimed_size: tuple[int, int] | None = None
    """(width, height) that the annotation gives for the page; shows which frame its polygons are in."""

    encoded: bytes = b""
    image: Array = field(default_factory=lambda: NO_IMAGE)
    """(H, W, 3): upright RGB uint8 from decode on; float32 only after a `Normalize` in the list of transforms."""
    lazy: LazyImage | None = None
    """What makes the pixels, while `image` is empty."""
    reduced_from: tuple[int, int] | None = None
    """(width, height) of the polygons' frame while `image` has fewer: decoded smaller, or in DALI."""

    inverse_matrix: NDArray[np.float64] = field(default_factory=lambda: UNMOVED)
    """From the pixels of `image` back to the upright source page.

    Coordinates are those of polygons. A fixed stage that scales counts from the corner of the first pixel, as a resize
    of its pixels does: 0 stays 0. Random stages count from its centre, as a warp does: a flip takes x to width - 1 - x.
    """

    shape: tuple[int, int] = (0, 0)
    """(width, height) of the upright source page."""
    raw_size: tuple[int, int] = (0, 0)
    """(width, height) as stored in the file."""
    orientation: int = 1
    polygon_frame: str = "upright"

    unseen: Polygons = field(default_factory=lambda: NO_POLYGONS)
    """Words that are off the page or too small to have an area on it, where they are on the source page: a score
    counts them."""
    maps: Maps | None = None
    map_source: str = ""
    """Where the maps are from: "drawn", "stored", or "stale" (stored ones did not fit, so they were drawn)."""
    cached: str = ""
    """What the cache had: "hit", "miss", "invalid" (damaged bytes), or "" if there is no cache."""
    recovered: str = ""
    """Why a strict decoder refused the file that a tolerant one then read; empty for a sound file."""
    dropped_polygons: int = 0
    """How many polygons lost their area, or were off the page; those outside a random crop do not count."""
    crossed_polygons: int = 0
    """How many outlines crossed themselves, and became ignored hulls."""
    simplified_polygons: int = 0
    """How many outlines had more vertices than can be drawn in bounded time, and lost some."""

    @property
    def width(self) -> int:
        return int(self.image.shape[1])

    @property
    def height(self) -> int:
        return int(self.image.shape[0])

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the frame that polygons live in."""
        if self.lazy is not None:
            return self.lazy.size
        return self.reduced_from or (self.width, self.height)

    @property
    def view(self) -> PageView:
        """The page as random stages see it while they draw."""
        return PageView(self.polygons, *self.size)

    def unpacked(self) -> Sample:
        """The sample with its pixels."""
        return self if self.lazy is None else replace(self, image=self.lazy.pixels(), lazy=None)

    def moved(self, image: Array, matrix: NDArray[np.float64], frame: tuple[int, int] | None = None) -> Sample:
        """The sample after its pixels were moved to `image`: moves polygons and the matrix back to the source page.

        `frame` is the (width, height) that polygons live in, if it is not the image's own.
        """
        polygons = self.polygons.moved(matrix)
        visible = polygons.on_page(*(frame or (image.shape[1], image.shape[0])))
        page = self._without(self.polygons, self.inverse_matrix, visible)
        return replace(page, polygons=polygons.select(visible)).placed(image, matrix)

    def placed(self, image: Array, matrix: NDArray[np.float64]) -> Sample:
        """The sample after pixels and polygons were moved; polygons that lost their area are dropped and counted."""
        solid, inverse = self.polygons.solid, self.inverse_matrix @ np.linalg.inv(matrix)
        return replace(
            self._without(self.polygons, inverse, solid),
            image=image,
            lazy=None,
            polygons=self.polygons.select(solid),
            inverse_matrix=inverse,
            reduced_from=None,
            maps=None,
        )

    def _without(self, polygons: Polygons, inverse: NDArray[np.float64], kept: NDArray[np.bool_]) -> Sample:
        """The sample that notes polygons which it no longer shows; `inverse` moves them to the source page."""
        if kept.all():
            return self
        gone = polygons.select(~kept).moved(inverse)
        return replace(self, unseen=self.unseen.followed_by(gone), dropped_polygons=self.dropped_polygons + len(gone))
