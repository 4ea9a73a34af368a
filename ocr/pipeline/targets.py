"""targets: polygons to probability map, threshold map and the masks of the loss.

For a polygon with area A and perimeter L, D = A (1 - r^2) / L. The probability map is 1 inside the polygon shrunk
by D, the threshold map rises to `thresh_max` on the outline and falls to `thresh_min` at distance D from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from pathlib import Path

import cv2
import numpy as np
import pyclipper
from numpy.typing import NDArray

from ocr.checks import SHARE, Range, check_numbers
from ocr.errors import ConfigError, MapError
from ocr.formats.maps import map_file, read_maps
from ocr.geometry.kernels.maps import fill_upright_boxes, raise_border_band
from ocr.geometry.polygons import Polygons
from ocr.pipeline.fingerprint import digest, stages_digest
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.stage import FixedStage

log = logging.getLogger(__name__)
# Pixels. Vertices further out are moved here: Clipper ends the process beyond 2^62, and OpenCV walks every row.
FAR = 1 << 20


@dataclass(frozen=True, slots=True)
class Targets(FixedStage):
    """Draw the maps of a page.

    Text whose shorter side is below `min_text_size` is left out of the loss, and so is text that is marked ignore or
    whose shrunk form vanishes. The default is 2 pixels because receipts at 640 have lines of 6.
    """

    shrink_ratio: float = 0.4
    thresh_min: float = 0.3
    thresh_max: float = 0.7
    min_text_size: float = 2.0

    def __post_init__(self) -> None:
        inside = Range(0, 1, above=True, below=True)
        check_numbers(self, shrink_ratio=inside, thresh_min=SHARE, thresh_max=SHARE, min_text_size=Range(0))
        if self.thresh_min >= self.thresh_max:
            raise ConfigError(f"{self!r}: thresh_min < thresh_max must hold")

    def __call__(self, sample: Sample) -> Sample:
        maps = self.draw(sample.polygons, *sample.size, sample.annotated)
        return replace(sample, maps=maps, map_source="drawn")

    def draw(
        self, polygons: Polygons, width: int, height: int, annotated: bool = True, out: Maps | None = None
    ) -> Maps:
        """The four maps of a page of this size, written into `out` if it is given."""
        size = (height, width)
        maps = out or Maps(
            np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.bool_), np.empty(size, np.bool_)
        )
        maps.thresh_map.fill(self.thresh_min)
        reach = self.fill(polygons, annotated, maps.prob_map, maps.prob_mask, maps.thresh_mask)
        if len(polygons):
            low, high = float(self.thresh_min), float(self.thresh_max)
            raise_border_band(polygons.vertices, polygons.offsets, reach, low, high, maps.thresh_map)
            maps.thresh_mask[:] |= maps.thresh_map > np.float32(self.thresh_min)
            _erase(polygons, reach == 0, maps.thresh_mask)
        return maps

    def fill(
        self,
        polygons: Polygons,
        annotated: bool,
        prob_map: NDArray[np.float32],
        prob_mask: NDArray[np.bool_],
        thresh_mask: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Fill all but the border band, which is added to `thresh_map` and `thresh_mask` by the caller.

        Returns how far the band of each polygon reaches: D, or 0 if the polygon is left out of the loss.
        """
        # If nobody looked for text, an empty map must not teach that there is none.
        for array, value in ((prob_map, 0), (prob_mask, annotated), (thresh_mask, False)):
            array.fill(value)
        if not len(polygons):
            return np.zeros(0)
        areas, perimeters = polygons.areas, polygons.perimeters
        distances = np.minimum(areas * (1 - self.shrink_ratio**2) / np.maximum(perimeters, 1e-9), FAR)
        # A figure of eight has loops that cancel: without an area there is no D to draw it with.
        left_out = polygons.ignore | ~(distances > 0) | self._too_small(polygons, areas, perimeters)
        whole, offsets = _whole_pixels(polygons), polygons.offsets
        drawn = fill_upright_boxes(whole, offsets, distances, left_out, prob_map, thresh_mask)
        for p in np.flatnonzero(~left_out & ~drawn):
            outline = whole[offsets[p] : offsets[p + 1]]
            pieces = shrink(outline, distances[p])
            for piece in pieces:
                cv2.fillPoly(prob_map, [piece], 1.0)
            if pieces:
                cv2.fillPoly(thresh_mask.view(np.uint8), [outline], 1)
            else:
                left_out[p] = True
        _erase(polygons, left_out, prob_mask)
        distances[left_out] = 0
        return distances

    def _too_small(
        self, polygons: Polygons, areas: NDArray[np.float64], perimeters: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        # A shape is at least 2 A / L wide in every direction, so only the thin ones are measured.
        suspects = 2 * areas < self.min_text_size * perimeters
        too_small = np.zeros(len(polygons), dtype=np.bool_)
        for p in np.flatnonzero(suspects):
            outline = polygons.vertices[polygons.offsets[p] : polygons.offsets[p + 1]]
            too_small[p] = min(cv2.minAreaRect(outline)[1]) < self.min_text_size
        return too_small


def _whole_pixels(polygons: Polygons) -> NDArray[np.int32]:
    """All vertices cut to whole pixels, which is what Clipper works on and what defines the maps."""
    vertices = polygons.vertices
    if not np.abs(vertices).max(initial=0) <= FAR:
        vertices = np.nan_to_num(vertices).clip(-FAR, FAR)
    return vertices.astype(np.int32)


def _erase(polygons: Polygons, left_out: NDArray[np.bool_], mask: NDArray[np.bool_]) -> None:
    """Clear a mask inside the polygons that are left out of the loss."""
    if left_out.any():
        whole, offsets = _whole_pixels(polygons), polygons.offsets
        for p in np.flatnonzero(left_out):
            cv2.fillPoly(mask.view(np.uint8), [whole[offsets[p] : offsets[p + 1]]], 0)


def shrink(outline: NDArray[np.int32], distance: float) -> list[NDArray[np.int32]]:
    """The pieces that are left of a polygon on whole pixels when its outline moves inwards by `distance`."""
    offset = pyclipper.PyclipperOffset()
    try:
        offset.AddPath(outline.tolist(), pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    except pyclipper.ClipperException:
        return []  # On whole pixels it has fewer than three distinct vertices.
    return [np.array(piece, dtype=np.int32) for piece in offset.Execute(-distance)]


@dataclass(frozen=True, slots=True, eq=False)
class StoredTargets(FixedStage):
    """Take the maps from their file if it fits the page exactly, or else draw them.

    A file fits if its fingerprint equals that of the page: polygons, size, parameters and code. A page that was moved,
    or whose annotation was changed, needs other maps.
    """

    targets: Targets
    folder: Path

    def __repr__(self) -> str:
        return f"StoredTargets({self.targets!r})"

    def __call__(self, sample: Sample) -> Sample:
        file = map_file(self.folder, sample.filename)
        try:
            _, maps = read_maps(file, maps_fingerprint(sample, self.targets), sample.size)
        except FileNotFoundError:
            return self.targets(sample)
        except MapError as error:
            _warn_once(self.folder, str(error))
        else:
            if maps is not None:
                return replace(sample, maps=Maps(*maps), map_source="stored")  # type: ignore[arg-type]
            _warn_once(
                self.folder,
                f"{file} was drawn from other polygons, another size or other code "
                f"than {sample.filename} has now. Write them again: python scripts/preprocess_maps.py",
            )
        return replace(self.targets(sample), map_source="stale")


def _warn_once(folder: Path, reason: str) -> None:
    """Warn of the first map of a folder that does not fit; the ledger counts them all."""
    if next(_warnings(folder)) == 0:
        log.warning("%s: stale maps are not used but drawn again. The first: %s", folder, reason)


@cache
def _warnings(folder: Path) -> Iterator[int]:
    """Counts the warnings of a folder. Not global data, which would count in the fingerprint of what reaches it."""
    return count()


def maps_fingerprint(sample: Sample, targets: Targets) -> str:
    """Digest of everything the maps of a sample depend on."""
    polygons = sample.polygons
    return digest(
        # A subclass may use what changes while the program runs.
        _own_digest(targets, repr(targets)) if type(targets) is Targets else stages_digest((targets,)),
        "{}x{} annotated={}".format(*sample.size, sample.annotated),
        polygons.vertices.tobytes(),
        polygons.offsets.tobytes(),
        polygons.ignore.tobytes(),
    )


@lru_cache(maxsize=16)
def _own_digest(targets: Targets, shown: str) -> str:
    """Computed once, since every page asks for it; `shown` tells 2 from 2.0, which are equal."""
    return stages_digest((targets,))
