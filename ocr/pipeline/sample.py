"""What flows through the stages: one frozen `Sample`, from encoded bytes to page, polygons and maps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.polygons import Polygons

if TYPE_CHECKING:
    from ocr.pipeline.dense import DensePage
    from ocr.pipeline.sampling import Sampling

NO_IMAGE = np.zeros((0, 0, 3), dtype=np.uint8)
UNMOVED = np.eye(3)
UNMOVED.flags.writeable = False
POLYGON_COUNTS = ("dropped_polygons", "crossed_polygons", "simplified_polygons")
"""Fields of a sample that count polygons which are not as annotated."""


class Maps(NamedTuple):
    """What the loss compares with, all (H, W): where text is, how far from its border, and where each counts."""

    prob_map: NDArray[np.float32]
    thresh_map: NDArray[np.float32]
    prob_mask: NDArray[np.bool_]
    thresh_mask: NDArray[np.bool_]


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
    image: NDArray[Any] = field(default_factory=lambda: NO_IMAGE)
    """(H, W, 3): upright RGB uint8 from decode on; float32 only after a `Normalize` in the list of transforms."""

    dense: DensePage | None = None
    """The page as a dense cache has it, while `image` is empty."""
    sampling: Sampling | None = None
    """The pass over pixels that makes the page, while `image` is empty."""

    reduced_from: tuple[int, int] | None = None
    """(width, height) of the polygons' frame while `image` has fewer: decoded smaller, not made yet, or in DALI."""

    inverse_matrix: NDArray[np.float64] = field(default_factory=lambda: UNMOVED)
    """From the pixels of `image` back to the upright source page."""

    shape: tuple[int, int] = (0, 0)
    """(width, height) of the upright source page."""
    raw_size: tuple[int, int] = (0, 0)
    """(width, height) as stored in the file."""
    orientation: int = 1
    polygon_frame: str = "upright"

    maps: Maps | None = None
    map_source: str = ""
    """Where the maps are from: "drawn", "stored", "stale" (stored ones did not fit, so they were drawn) or "cached"."""
    cached: str = ""
    """What the cache had: "hit", "miss", "invalid" (there, but with other content), or "" if there is no cache."""
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
        return self.reduced_from or (self.width, self.height)

    @property
    def view(self) -> PageView:
        """The page as random stages see it while they draw."""
        return PageView(self.polygons, *self.size)

    def unpacked(self) -> Sample:
        """The sample with its pixels."""
        packed = self.dense or self.sampling
        if packed is None:
            return self
        return replace(self, image=packed.unpack(), dense=None, sampling=None, reduced_from=None)

    def moved(self, image: NDArray[Any], matrix: NDArray[np.float64], frame: tuple[int, int] | None = None) -> Sample:
        """The sample after its pixels were moved to `image`: moves polygons and the matrix back to the source page.

        `frame` is the (width, height) that polygons live in, if it is not the image's own.
        """
        polygons = self.polygons.moved(matrix)
        visible = polygons.on_page(*(frame or (image.shape[1], image.shape[0])))
        gone = int(len(visible) - visible.sum())
        page = replace(self, polygons=polygons.select(visible), dropped_polygons=self.dropped_polygons + gone)
        return page.placed(image, matrix)

    def placed(self, image: NDArray[Any], matrix: NDArray[np.float64]) -> Sample:
        """The sample after pixels and polygons were moved; polygons that lost their area are dropped and counted."""
        solid = self.polygons.solid
        return replace(
            self,
            image=image,
            polygons=self.polygons.select(solid),
            inverse_matrix=self.inverse_matrix @ np.linalg.inv(matrix),
            dropped_polygons=self.dropped_polygons + int(len(solid) - solid.sum()),
            reduced_from=None,
            maps=None,
        )
