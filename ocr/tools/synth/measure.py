"""What a page looks like, in numbers: size, lines, levels of paper and ink, noise, sharpness, colour, surroundings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

# Pages are measured as a detector sees them: the longest side scaled to this.
SIDE = 960
# Fewer boxes than this say nothing about the height of a page's text.
_MIN_BOXES = 3
# Levels: print that differs less from its paper cannot be told from the grain.
_MIN_CONTRAST = 25
# The surroundings of a page are found on an image of this longest side.
_COARSE = 240

Gray = NDArray[np.uint8]
Boxes = NDArray[np.int32]


class PrintMeasure(NamedTuple):
    """Levels of paper and ink, and the steepest edges of the text as a part of the difference."""

    paper: float
    ink: float
    sharpness: float


@dataclass(frozen=True, slots=True)
class PageMeasure:
    """One page, scaled to a longest side of 960 pixels; levels are gray values from 0 to 255."""

    width: int
    height: int
    lines: int
    """Boxes of text: those of the annotation; without one, pieces of lines found in the pixels."""
    line_height: float
    """Median, in pixels; NaN if no text was found."""
    print_width: float
    """Part of the page's width from the first box to the last."""
    paper: float
    ink: float
    noise: float
    """Standard deviation of the paper's grain."""
    sharpness: float
    """Steepest edges of the text, as a part of its contrast."""
    saturation: float
    background: float
    """Part of the page around the paper: a table, or the dark lid of a scanner."""

    @property
    def aspect(self) -> float:
        """Height by width."""
        return self.height / self.width

    @property
    def megapixels(self) -> float:
        """Of the file, not of the scaled page."""
        return self.width * self.height / 1e6

    @property
    def scale(self) -> float:
        """From pixels of the file to those of the scaled page."""
        return SIDE / max(self.width, self.height)

    @property
    def contrast(self) -> float:
        """Paper less ink."""
        return self.paper - self.ink


def measure_page(
    image_hwc: NDArray[np.uint8], size: tuple[int, int], boxes: NDArray[np.float64] | None = None
) -> PageMeasure:
    """Measure a page; `size` is that of its file, `boxes` are (left, top, right, bottom) in pixels of `image_hwc`."""
    image, scale = _scaled(image_hwc)
    gray = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    found = find_lines(gray) if boxes is None else _inside(boxes * scale, gray)
    levels = _print(gray, found)
    reach = found[:, 2].max() - found[:, 0].min() if len(found) else 0
    heights = found[:, 3] - found[:, 1]
    return PageMeasure(
        *size,
        lines=len(found),
        line_height=float(np.median(heights)) if len(found) >= _MIN_BOXES else float("nan"),
        print_width=float(reach / gray.shape[1]),
        paper=levels.paper,
        ink=levels.ink,
        noise=_noise(gray, found, levels.paper),
        sharpness=levels.sharpness,
        saturation=_saturation(image),
        background=_background(gray, levels.paper),
    )


def measure_print(image_hwc: NDArray[np.uint8], boxes: NDArray[np.float64]) -> PrintMeasure:
    """The print alone, as `measure_page` measures it."""
    image, scale = _scaled(image_hwc)
    gray = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    return _print(gray, _inside(boxes * scale, gray))


def _scaled(image_hwc: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], float]:
    scale = SIDE / max(image_hwc.shape[:2])
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image_hwc, None, fx=scale, fy=scale, interpolation=method), dtype=np.uint8), scale


def is_visible(gray: Gray, polygon: NDArray[np.float64]) -> bool:
    """Whether the region of a labelled line holds ink that stands out, at the page's own resolution."""
    left, top = np.floor(polygon.min(axis=0)).astype(int)
    right, bottom = np.ceil(polygon.max(axis=0)).astype(int)
    # Two thousand pixels give the levels of a line as well as all of a large one do.
    step = max(1, int(((right - left) * (bottom - top) / 2000) ** 0.5))
    crop = gray[top : bottom + 1 : step, left : right + 1 : step]
    if not crop.size:
        return False
    # Dashes and dots fill a hundredth of their box.
    ink, paper = np.percentile(crop, (1, 85))
    return bool(paper - ink >= _MIN_CONTRAST)


def find_lines(gray: Gray) -> Boxes:
    """Boxes of what looks like lines of dark text: an estimate for pages without annotation."""
    dark = cv2.morphologyEx(gray, cv2.MORPH_BLACKHAT, cv2.getStructuringElement(cv2.MORPH_RECT, (17, 17)))
    level = max(24.0, cv2.threshold(dark, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[0] * 0.7)
    ink = np.asarray(dark > level, dtype=np.uint8)
    joined = cv2.morphologyEx(ink, cv2.MORPH_CLOSE, cv2.getStructuringElement(cv2.MORPH_RECT, (11, 1)))
    _, _, stats, _ = cv2.connectedComponentsWithStats(joined, connectivity=4)
    x, y, width, height, area = stats[1:].T
    filled = area / np.maximum(1, width * height)
    kept = (height >= 5) & (height <= 60) & (width >= 1.5 * height) & (filled > 0.25) & (filled < 0.95)
    return np.asarray(np.stack([x, y, x + width, y + height], axis=1)[kept], dtype=np.int32)


def _inside(boxes: NDArray[np.float64], gray: Gray) -> Boxes:
    height, width = gray.shape
    clipped = np.clip(np.rint(boxes).astype(np.int32).reshape(-1, 4), 0, (width, height, width, height))
    return clipped[((clipped[:, 2:] - clipped[:, :2]) >= 3).all(axis=1)]


def _print(gray: Gray, boxes: Boxes) -> PrintMeasure:
    """Medians over the boxes."""
    if not len(boxes):
        return PrintMeasure(float(np.percentile(gray, 80)), float("nan"), float("nan"))
    found = []
    # A hundred boxes tell as much about a page as all of them.
    for left, top, right, bottom in boxes[:: max(1, len(boxes) // 100)]:
        crop = gray[top:bottom, left:right].astype(np.float32)
        ink, paper = np.percentile(crop, (4, 85))
        steps = np.abs(np.diff(crop, axis=1))
        found.append((paper, ink, np.percentile(steps, 97) / max(1.0, float(paper - ink))))
    return PrintMeasure(*np.median(np.array(found), axis=0).tolist())


def _noise(gray: Gray, boxes: Boxes, paper: float) -> float:
    """From the second differences of bright pixels away from text, which smooth shading does not reach."""
    away = np.ones(gray.shape, dtype=np.bool_)
    for left, top, right, bottom in boxes:
        away[max(0, top - 4) : bottom + 4, max(0, left - 4) : right + 4] = False
    away &= gray > 0.75 * paper
    kernel = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], dtype=np.float32)
    grain = cv2.filter2D(gray.astype(np.float32), -1, kernel)[away]
    # The kernel multiplies the standard deviation of white noise by 6; the mean is cut against rules and specks.
    return float(np.sqrt(np.mean(np.square(np.clip(grain, -60, 60)))) / 6) if grain.size else 0.0


def _saturation(image: NDArray[np.uint8]) -> float:
    small = cv2.resize(image, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA).astype(np.int16)
    return float((small.max(axis=2) - small.min(axis=2)).mean())


def _background(gray: Gray, paper: float) -> float:
    """Dark or strongly different regions that touch the border of the page."""
    scale = _COARSE / max(gray.shape)
    small = cv2.medianBlur(cv2.resize(gray, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), 7)
    dark = np.pad(np.asarray(small < 0.72 * paper, dtype=np.uint8), 1)
    _, _, stats, _ = cv2.connectedComponentsWithStats(dark, connectivity=4)
    x, y, width, height, area = stats.T
    touches = (x <= 1) | (y <= 1) | (x + width >= dark.shape[1] - 1) | (y + height >= dark.shape[0] - 1)
    touches[0] = False
    return float(area[touches & (area > 0.001 * dark.size)].sum() / small.size)
