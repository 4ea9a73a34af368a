"""windows: an image larger than the model sees at once, in overlapping parts whose maps become one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ocr.pipeline.sample import STRIDE

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
