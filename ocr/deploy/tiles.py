"""tiles: pages that the letterbox would shrink until their text is lost are also seen in finer sizes, in windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ocr.checks import Range
from ocr.deploy.inputs import PagePixels
from ocr.errors import ConfigError
from ocr.evaluation.boxes import Detections
from ocr.pipeline.sample import NO_IMAGE, STRIDE, Sample, rounded_up

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
SAME_HEIGHT = 2.0
"""Text in a box that is this many times as high was not seen as a line of its own."""


class Tiles:
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

        >>> Tiles("auto").sides(7680, 960), Tiles("auto").sides(10_000, 960)
        ([960], [960, 1920, 3840, 7680])
        >>> Tiles(2000).sides(2000, 960), Tiles(2000).sides(10_000, 960)
        ([960], [4800])
        """
        if self.tile is None:
            return [size]
        if self.tile == AUTO:
            finer = [size * 2**level for level in range(1, 16) if size * 2**level <= longest]
            return [size, *(finer if longest > AUTO_SHRINK * size else [])]
        return [size if longest <= int(self.tile) else round(longest * size / int(self.tile))]

    def find(self, detector: Detector, pixels: PagePixels, whole: Sample) -> Detections:
        """The boxes of a large page; `whole` is the page as the model sees all of it."""
        size = detector.page_size
        longest = max(whole.shape)
        sides = self.sides(longest, size)
        best: Detections | None = None
        previous = size
        for side in sides:
            if side == size:
                found = detector.boxes_of(whole)
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
        and not np.any(
            (bounds[:, :2] <= centre).all(1) & (centre <= bounds[:, 2:]).all(1) & (before <= SAME_HEIGHT * height)
        )
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
    enlarged = detector.preparation.enlarged(pixels.read(replace(detector.decode, needed_side=side)), side)
    if is_finest:
        # Page, enlarged page and map together would be the most memory of all.
        pixels.release()
    enlarged = detector.preparation.filled_up(enlarged)
    window = rounded_up(detector.page_size, detector.page_size)[0]
    prob_map = map_in_windows(enlarged.image, window, detector.maps)
    # Without its pixels, which are many.
    enlarged = replace(enlarged, image=NO_IMAGE)
    return detector.boxes(prob_map, enlarged.inverse_matrix, enlarged.shape)


SHARED = 4
"""Neighbouring windows share at least about one part in this of their side."""


def window_starts(length: int, window: int) -> list[int]:
    """Where windows begin along a side: evenly spread, at multiples of 32, like the cells of the coarsest features.

    >>> window_starts(960, 960), window_starts(2048, 960)
    ([0], [0, 544, 1088])
    """
    last = length - window
    if last <= 0:
        return [0]
    gaps = -(-last // (window - window // SHARED))
    return [round(last * number / gaps / STRIDE) * STRIDE for number in range(gaps + 1)]


def window_shares(starts: list[int], window: int, length: int) -> list[NDArray[np.float32]]:
    """How much each window counts along a side: less towards its ends, and all together 1 at every pixel.

    >>> first, second = window_shares([0, 6], 8, 14)
    >>> first.tolist(), (first[6:] + second[:2]).tolist()
    ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.25], [1.0, 1.0])
    """
    distance = np.arange(window) + 0.5
    share = np.minimum(np.minimum(distance, window - distance) / (window // SHARED), 1.0)
    total = np.zeros(length)
    for start in starts:
        total[start : start + window] += share
    return [(share / total[start : start + window]).astype(np.float32) for start in starts]


def map_in_windows(
    image_hwc: NDArray[np.uint8], window: int, find_maps: Callable[[NDArray[np.uint8]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The map (H, W) of an image whose sides are multiples of 32; `find_maps` takes (1, h, w, 3), sides <= `window`.

    Each pixel is the mean of the windows that hold it. A word that a border cuts is whole in another window, or
    continues there.
    """
    height, width = image_hwc.shape[:2]
    sides = [(length, min(length, window)) for length in (height, width)]
    along = [
        list(zip(starts, window_shares(starts, side, length), strict=True))
        for length, side in sides
        for starts in [window_starts(length, side)]
    ]
    merged = np.zeros((height, width), dtype=np.float32)
    for (top, down), (left, across) in product(*along):
        part = slice(top, top + len(down)), slice(left, left + len(across))
        merged[part] += find_maps(np.ascontiguousarray(image_hwc[part])[None])[0] * (down[:, None] * across)
    return merged
