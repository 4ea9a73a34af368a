"""Large pages: those that the letterbox would shrink until their text is lost are looked at in finer sizes, too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ocr.checks import Range
from ocr.deploy.inputs import PagePixels
from ocr.deploy.views import Views, on_first_grid
from ocr.deploy.windows import map_in_windows
from ocr.errors import ConfigError
from ocr.evaluation.boxes import Detections
from ocr.pipeline.sample import NO_IMAGE, rounded_up

if TYPE_CHECKING:
    from ocr.deploy.detector import Detector

AUTO = "auto"
AUTO_SHRINK = 8
"""With tile=auto, pages that the letterbox shrinks by more than this are large."""
SMALL_TEXT = 8.0
"""Pixels of the map: text that is not higher is better seen in a finer size. The recipe of the training gives 11 to the
lowest tenth of the text."""
LESS_SURE = 0.02
"""The mean score of the boxes of a finer size may be this much lower. Of sheets of pages it is 0.05 to 0.07 higher, of
noise that looks like text in a finer size 0.05 lower."""
MIN_HIDDEN = 0.3
"""A finer size must show this share of the text (sum of the scores) of the size before, hidden there."""
SAME = 2.0
"""Text in a box that is this many times as high was not seen as a line of its own."""


class LargePages:
    """Finds the text of pages in overlapping windows, as many as a finer size of the page needs.

    `tile` is the side of a window in pixels of the page, which the model sees in the size of its training pages; a page
    that is not larger is done whole. None: every page is. "auto": pages are done whole if the letterbox shrinks them by
    8 at most; larger ones also in sizes that are 2, 4, 8 times finer, for as long as that shows text that was too small
    to be seen in the size before, and is as sure of its boxes.
    """

    def __init__(self, tile: int | str | None) -> None:
        if tile is not None and tile != AUTO and tile not in Range(64, whole=True):
            raise ConfigError(
                f"tile={tile!r} must be auto, null (None), or {Range(64, whole=True)}: pixels of the page",
                setting="tile",
                value=tile,
            )
        self.tile = tile

    def sides(self, longest: int, size: int) -> list[int]:
        """Longest sides that a page is looked at in, coarse to fine; only [size]: it is done whole.

        >>> LargePages("auto").sides(7680, 960), LargePages("auto").sides(10_000, 960)
        ([960], [960, 1920, 3840, 7680])
        >>> LargePages(2000).sides(2000, 960), LargePages(2000).sides(10_000, 960)
        ([960], [4800])
        """
        if self.tile is None:
            return [size]
        if self.tile == AUTO:
            finer = [size * 2**level for level in range(1, 16) if size * 2**level <= longest]
            return [size, *(finer if longest > AUTO_SHRINK * size else [])]
        return [size if longest <= int(self.tile) else round(longest * size / int(self.tile))]

    def find(self, detector: Detector, pixels: PagePixels, views: Views) -> Detections:
        """The boxes of a large page; `views` are those of the whole page."""
        size = detector.views.letterbox.size
        longest = max(views[0].shape)
        sides = self.sides(longest, size)
        best: Detections | None = None
        previous = size
        for side in sides:
            if side == size:
                found = detector.boxes_of(views)
            else:
                found = _in_windows(detector, pixels, side, is_finest=side == sides[-1])
            if best is not None:
                if not _is_better(found, best, longest / previous):
                    break
                if _text_height(found) * side > SMALL_TEXT * longest:
                    return found
            best, previous = found, side
        assert best is not None
        return best


def _is_better(finer: Detections, coarser: Detections, shrunk: float) -> bool:
    """Whether a finer size is as sure of its boxes, and shows enough text that is hidden in the coarser one, which
    shrinks the page by `shrunk`.

    Hidden is text that is small there, and not in a box of about its height. Large text falls into pieces in a finer
    size, which are more boxes, but in one that was found before; what noise looks like in a finer size has low scores.
    """
    if not len(coarser):
        return True
    if not len(finer) or finer.scores.mean() < coarser.scores.mean() - LESS_SURE:
        return False
    heights, before = _heights(finer), _heights(coarser)
    bounds = coarser.polygons.bounds
    centres = (finer.polygons.bounds[:, :2] + finer.polygons.bounds[:, 2:]) / 2
    hidden = [
        height <= SMALL_TEXT * shrunk
        and not np.any((bounds[:, :2] <= centre).all(1) & (centre <= bounds[:, 2:]).all(1) & (before <= SAME * height))
        for centre, height in zip(centres, heights, strict=True)
    ]
    return float(finer.scores[hidden].sum()) >= MIN_HIDDEN * float(coarser.scores.sum())


def _heights(found: Detections) -> NDArray[np.float64]:
    """The shorter sides of the rectangles that have the area and the perimeter of each box."""
    half, areas = found.polygons.perimeters / 2, found.polygons.areas
    return np.asarray((half - np.sqrt(np.maximum(half**2 - 4 * areas, 0))) / 2, dtype=np.float64)


def _text_height(found: Detections) -> float:
    """Median over the boxes; 0 without any."""
    return float(np.median(_heights(found))) if len(found) else 0.0


def _in_windows(detector: Detector, pixels: PagePixels, side: int, is_finest: bool) -> Detections:
    decode = replace(detector.decode, needed_side=max(detector.views.sides(side)))
    windows = detector.views.sides(detector.views.letterbox.size)
    views, maps = [], []
    for number, window in enumerate(windows):
        view = detector.views.enlarged(pixels.read(decode), side, number)
        if is_finest and number == len(windows) - 1:
            # Page, view and map together would be the most memory of all.
            pixels.release()
        view = detector.views.filled_up(view)
        maps.append(map_in_windows(view.image, rounded_up(window, window)[0], detector.maps))
        # Without its pixels, which are many.
        views.append(replace(view, image=NO_IMAGE))
        del view
    first = views[0]
    return detector.boxes(on_first_grid(maps, tuple(views)), first.inverse_matrix, first.shape)
