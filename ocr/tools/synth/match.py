"""A finished page brought to the colour, sharpness and levels of a measured one. Nothing here moves a pixel."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.measure import SIDE, PageMeasure, PrintMeasure, measure_page, measure_print
from ocr.tools.synth.scanner import sharpen

# Within this part of each other two pages are as sharp as one another.
_SAME_SHARPNESS = 0.07
_MAX_UNSHARP = 2.0
# Black and white cut the curve off, so that one round falls short.
_ROUNDS = 2
# The steepest of edges is that of a step, whose blur by sigma is this steep.
_EDGE = 0.4


def match_page(page: NDArray[np.uint8], boxes: NDArray[np.float64], like: PageMeasure) -> NDArray[np.uint8]:
    """The page with the saturation, the steepness of edges, and the levels of paper and ink of `like`."""
    if not len(boxes) or np.isnan(like.ink):
        return page
    made = measure_page(page, (page.shape[1], page.shape[0]), boxes)
    page = _match_saturation(page, made.saturation, like.saturation)
    page = _match_sharpness(page, made.sharpness, like.sharpness)
    for _ in range(_ROUNDS):
        page = _match_levels(page, measure_print(page, boxes), like)
    return page


def _match_saturation(page: NDArray[np.uint8], made: float, wanted: float) -> NDArray[np.uint8]:
    if made <= wanted:
        return page
    gray = cv2.cvtColor(cv2.cvtColor(page, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    share = wanted / made
    return np.asarray(cv2.addWeighted(page, share, gray, 1 - share, 0), dtype=np.uint8)


def _match_sharpness(page: NDArray[np.uint8], made: float, wanted: float) -> NDArray[np.uint8]:
    ratio = wanted / max(0.05, made)
    scale = max(1.0, max(page.shape) / SIDE)
    if ratio < 1 - _SAME_SHARPNESS:
        sigma = _EDGE * scale * (1 / ratio**2 - 1) ** 0.5
        return np.asarray(cv2.GaussianBlur(page, (0, 0), sigma), dtype=np.uint8) if sigma > 0.2 else page
    if ratio > 1 + _SAME_SHARPNESS:
        return sharpen(page, min(_MAX_UNSHARP, 2 * (ratio - 1)), scale)
    return page


def _match_levels(page: NDArray[np.uint8], made: PrintMeasure, like: PageMeasure) -> NDArray[np.uint8]:
    """A straight curve through the levels of ink and paper; beyond them it is cut off at black and white."""
    gain = like.contrast / max(12.0, made.paper - made.ink)
    curve = like.paper + (np.arange(256, dtype=np.float32) - made.paper) * gain
    return np.asarray(cv2.LUT(page, np.clip(curve, 0, 255).round().astype(np.uint8)), dtype=np.uint8)
