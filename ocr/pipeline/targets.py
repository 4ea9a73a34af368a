"""targets: polygons to probability map, threshold map and the masks of the loss.

For a polygon with area A and perimeter L, D = A (1 - r^2) / L. The probability map is 1 inside the polygon shrunk
by D, the threshold map rises to `thresh_max` on the outline and falls to `thresh_min` at distance D from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pyclipper
from numpy.typing import NDArray

from ocr.checks import SHARE, Range, check_numbers
from ocr.errors import ConfigError, DataError, MapError
from ocr.formats.maps import map_file, read_maps
from ocr.geometry.kernels.maps import draw_maps, find_upright_boxes, measure_outlines
from ocr.geometry.polygons import Polygons, check_units
from ocr.pipeline.fingerprint import digest, stages_digest
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.stage import FixedStage

log = logging.getLogger(__name__)


class MapSpec(NamedTuple):
    """A target map, (H, W) of a page, or (U, H, W) if text is found in U units."""

    dtype: type[np.generic]
    outside: float | str
    """Around a page that is smaller than its batch: a value, or the setting of `Targets` that has it."""
    batch_name: str
    on_disk: type[np.generic]
    """In a file of maps."""


MAPS: dict[str, MapSpec] = {
    "prob_map": MapSpec(np.float32, 0.0, "prob_maps", np.uint8),
    "thresh_map": MapSpec(np.float32, "thresh_min", "thresh_maps", np.float32),
    "prob_mask": MapSpec(np.bool_, False, "prob_masks", np.bool_),
    "thresh_mask": MapSpec(np.bool_, False, "thresh_masks", np.bool_),
}
"""What the loss compares with: where text is, how far from its border, and where each of them counts."""
ON_DISK = {name: spec.on_disk for name, spec in MAPS.items()}

# Pixels. Vertices further out are moved here: Clipper ends the process beyond 2^62, and OpenCV walks every row.
FAR = 1 << 20


class Shapes(NamedTuple):
    """The polygons of a page as they are drawn."""

    whole: NDArray[np.int32]
    """All vertices cut to whole pixels, which is what Clipper works on and what defines the maps."""
    offsets: NDArray[np.int32]
    reach: NDArray[np.float64]
    """How far the band of each polygon reaches: D, or 0 if the polygon is left out of the loss."""
    boxes: NDArray[np.int64]
    """The upright boxes, shrunk and not."""
    others: list[tuple[int, list[NDArray[np.int32]]]]
    """The other polygons, and the pieces that are left of each when it shrinks."""
    left_out: list[int]
    """The polygons that are left out of the loss."""

    def fill_others(self, prob_map: NDArray[np.float32], thresh_mask: NDArray[np.bool_]) -> None:
        """Draw the polygons that are no boxes."""
        for p, pieces in self.others:
            for piece in pieces:
                cv2.fillPoly(prob_map, [piece], 1.0)
            cv2.fillPoly(thresh_mask.view(np.uint8), [self._outline(p)], 1)

    def erase(self, mask: NDArray[np.bool_]) -> None:
        """Clear a mask inside the polygons that are left out of the loss."""
        for p in self.left_out:
            cv2.fillPoly(mask.view(np.uint8), [self._outline(p)], 0)

    def _outline(self, p: int) -> NDArray[np.int32]:
        return self.whole[self.offsets[p] : self.offsets[p + 1]]


@dataclass(frozen=True, slots=True)
class Targets(FixedStage):
    """Draw the maps of a page.

    Text whose shorter side is below `min_text_size` is left out of the loss, and so is text that is marked ignore or
    whose shrunk form vanishes. The default is 2 pixels because receipts at 640 have lines of 6.

    With one of `units`, labels of the other are left out; with both, each unit has its maps. A page whose labels are
    all of the other unit is masked: nobody outlined what is to be found there.
    """

    shrink_ratio: float = 0.4
    thresh_min: float = 0.3
    thresh_max: float = 0.7
    min_text_size: float = 2.0
    units: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        inside = Range(0, 1, above=True, below=True)
        check_numbers(self, shrink_ratio=inside, thresh_min=SHARE, thresh_max=SHARE, min_text_size=Range(0))
        if self.thresh_min >= self.thresh_max:
            problem = f"{self!r}: thresh_min < thresh_max must hold"
            raise ConfigError(problem, setting="Targets.thresh_min", value=self.thresh_min)
        object.__setattr__(self, "units", check_units("Targets.units", self.units))

    @property
    def outside(self) -> dict[str, float]:
        """The value of each map around a page that is smaller than its batch."""
        return {
            name: getattr(self, spec.outside) if isinstance(spec.outside, str) else spec.outside
            for name, spec in MAPS.items()
        }

    def __call__(self, sample: Sample) -> Sample:
        return with_maps(self, sample)

    def write(self, sample: Sample, out: Maps) -> str:
        """Draw the maps of a page in place; returns where they are from."""
        self.check_units_of(sample)
        self.draw(sample.polygons, *sample.size, sample.annotated, out)
        return "drawn"

    def draw(
        self, polygons: Polygons, width: int, height: int, annotated: bool = True, out: Maps | None = None
    ) -> Maps:
        """The maps of a page of this size, written into `out` if it is given."""
        maps = empty_maps(width, height, self.units) if out is None else out
        for number, unit in enumerate(self.units or ("",)):
            labels = self.labels_of(polygons, unit)
            # A page without text has none in either unit.
            looked_for = annotated and (len(labels) > 0 or not len(polygons))
            own = {name: array[number] for name, array in maps.items()} if len(self.units) > 1 else maps
            self._draw_unit(labels, looked_for, own)
        return maps

    def labels_of(self, polygons: Polygons, unit: str) -> Polygons:
        """The labels that a map of this unit is drawn from."""
        return polygons.of_unit(unit, unsaid=len(self.units) < 2) if self.units else polygons

    def check_units_of(self, sample: Sample) -> None:
        """DataError if the labels of a page do not tell the units apart that are to be learnt."""
        said = sample.polygons.units
        if len(self.units) == 2 and not said.all():
            raise DataError(
                f'{sample.path}: labels do not say whether they are lines or words. Write "unit": "lines" or "words" '
                "into its annotation, or set units to one of them",
                setting="units",
                value=self.units,
                path=sample.path,
            )
        if not self.units and said.any() and said.min() != said.max():
            raise DataError(
                f"{sample.path} is labelled in lines and in words. Set units=[lines], units=[words], or both",
                setting="units",
                path=sample.path,
            )

    def _draw_unit(self, polygons: Polygons, annotated: bool, maps: Maps) -> None:
        shapes, low, high = self.shapes(polygons), float(self.thresh_min), float(self.thresh_max)
        outlines = _read_only(polygons.vertices), _read_only(polygons.offsets)
        # If nobody looked for text, an empty map must not teach that there is none.
        draw_maps(
            *outlines, shapes.reach, shapes.boxes, low, high, annotated,
            maps["prob_map"], maps["thresh_map"], maps["prob_mask"], maps["thresh_mask"],
        )  # fmt: skip
        shapes.fill_others(maps["prob_map"], maps["thresh_mask"])
        shapes.erase(maps["prob_mask"])
        shapes.erase(maps["thresh_mask"])

    def shapes(self, polygons: Polygons) -> Shapes:
        """What is drawn of polygons, and which are left out of the loss."""
        offsets = _read_only(polygons.offsets)
        areas, perimeters = measure_outlines(_read_only(polygons.vertices), offsets)
        distances = np.minimum(areas * (1 - self.shrink_ratio**2) / np.maximum(perimeters, 1e-9), FAR)
        # A figure of eight has loops that cancel: without an area there is no D to draw it with.
        left_out = polygons.ignore | ~(distances > 0) | self._too_small(polygons, areas, perimeters)
        whole, others = _whole_pixels(polygons), []
        boxes, are_boxes = find_upright_boxes(whole, offsets, distances, left_out)
        for p in (~(left_out | are_boxes)).nonzero()[0].tolist():
            if pieces := shrink(whole[offsets[p] : offsets[p + 1]], distances[p]):
                others.append((p, pieces))
            else:
                left_out[p] = True
        distances[left_out] = 0
        return Shapes(whole, offsets, distances, boxes, others, left_out.nonzero()[0].tolist())

    def _too_small(
        self, polygons: Polygons, areas: NDArray[np.float64], perimeters: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        # A shape is at least 2 A / L wide in every direction, so only the thin ones are measured.
        suspects = 2 * areas < self.min_text_size * perimeters
        too_small = np.zeros(len(polygons), dtype=np.bool_)
        for p in suspects.nonzero()[0].tolist():
            outline = polygons.vertices[polygons.offsets[p] : polygons.offsets[p + 1]]
            too_small[p] = min(cv2.minAreaRect(outline)[1]) < self.min_text_size
        return too_small


def _whole_pixels(polygons: Polygons) -> NDArray[np.int32]:
    vertices = polygons.vertices
    if not np.abs(vertices).max(initial=0) <= FAR:
        vertices = np.nan_to_num(vertices).clip(-FAR, FAR)
    return vertices.astype(np.int32)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written, as arrays of a cache cannot: kernels are compiled for these only."""
    view = array.view()
    view.flags.writeable = False
    return view


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
        return with_maps(self, sample)

    def write(self, sample: Sample, out: Maps) -> str:
        """Copy the stored maps of a page, or draw them in place; returns where they are from."""
        stored, source = self.read(sample)
        if stored is None:
            self.targets.write(sample, out)
            return source
        for name, array in stored.items():
            np.copyto(out[name], array)
        return source

    def read(self, sample: Sample) -> tuple[Maps | None, str]:
        """The stored maps of a page; None with "drawn" if there are none, and with "stale" if they do not fit."""
        file = map_file(self.folder, sample.filename)
        expected = maps_fingerprint(sample, self.targets)
        try:
            _, maps = read_maps(file, ON_DISK, expected, sample.size, max(1, len(self.targets.units)))
        except FileNotFoundError:
            return None, "drawn"
        except MapError as error:
            _warn_once(self.folder, str(error))
            return None, "stale"
        if maps is None:
            _warn_once(
                self.folder,
                f"{file} was drawn from other polygons, another size or other code "
                f"than {sample.filename} has now. Rewrite it: python scripts/preprocess_maps.py",
            )
            return None, "stale"
        return maps, "stored"


def empty_maps(width: int, height: int, units: Sequence[str] = ()) -> Maps:
    """Memory for the maps of a page."""
    shape = (*unit_axis(units), height, width)
    return {name: np.empty(shape, spec.dtype) for name, spec in MAPS.items()}


def unit_axis(units: Sequence[str]) -> tuple[int, ...]:
    """The first axis of maps of several units; maps of one have none."""
    return (len(units),) if len(units) > 1 else ()


def with_maps(targets: Targets | StoredTargets, sample: Sample) -> Sample:
    """The sample with its maps."""
    maps = empty_maps(*sample.size, drawing(targets).units)
    return replace(sample, map_source=targets.write(sample, maps), maps=maps)


def drawing(targets: Targets | StoredTargets) -> Targets:
    """How maps are drawn where none are stored."""
    return targets.targets if isinstance(targets, StoredTargets) else targets


def _warn_once(folder: Path, reason: str) -> None:
    """Warn of the first map of a folder that does not fit; the ledger counts them all."""
    if next(_warnings(folder)) == 0:
        log.warning("%s: stale maps are not used, but redrawn. The first: %s", folder, reason)


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
        polygons.units.tobytes() if targets.units else b"",
    )


@lru_cache(maxsize=16)
def _own_digest(targets: Targets, shown: str) -> str:
    """Computed once, since every page asks for it; `shown` tells 2 from 2.0, which are equal."""
    return stages_digest((targets,))
