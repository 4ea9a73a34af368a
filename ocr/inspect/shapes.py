"""What a word or box looks like, in pixels of the map: height, angle, contrast, and the texture of its print."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.geometry.polygons import Polygons

Gray = NDArray[np.uint8]
Rectangle = tuple[float, float, float, float]
"""Left, top, right, bottom."""
# A lone character, such as a narrow 1, has no direction: its angle is the angle of the side nearest to level.
_LONE = 3.0
# Percentiles of gray levels that stand for the darkest and the lightest print: single pixels are noise.
_DARK, _LIGHT = 5, 95


@dataclass(frozen=True, slots=True)
class Shape:
    """One outline, and the pixels in the smallest rectangle around it; lengths are pixels of the map."""

    height: float
    """The rectangle's shorter side."""
    length: float
    angle: float
    """Degrees of the longer side from level, -90 to 90; positive: it falls to the right."""
    contrast: float
    """Gray levels between print and paper, 0 to 255."""
    is_light: bool
    """The print is lighter than its paper."""
    x: float
    y: float
    """Centre, as a share of the page's width and height."""

    @property
    def aspect(self) -> float:
        """Longer side over shorter side."""
        return self.length / max(self.height, 1e-6)


@dataclass(frozen=True, slots=True)
class Texture:
    """How ink and paper alternate in a box."""

    ink: float
    """Share of the pixels that are ink."""
    strokes: float
    """Strokes that a line along the box crosses, per height of the box: text has 0.5 to 4."""
    longest_line: float
    """Share of the box's length that its longest straight line of ink has."""
    uniform_columns: float
    """How uniform columns are, 0 to 1: in a bar code each is all ink or all paper."""


def measure_shapes(outlines: Polygons, gray: Gray, page: Rectangle) -> list[Shape]:
    """Outlines on a map where the page is in this rectangle."""
    return [_measure(outline, gray, page) for outline in outlines]


def measure_texture(outline: NDArray[np.float32], gray: Gray) -> Texture:
    """Ink is the rarer of the two kinds of pixels that a threshold (Otsu's) separates."""
    patch = upright_patch(outline, gray)
    level, _ = cv2.threshold(patch, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    ink = patch <= level
    if ink.mean() > 0.5:
        ink = ~ink
    rows, columns = ink.shape
    middle = ink[rows // 4 : max(rows // 4 + 1, -(-3 * rows // 4))]
    starts = (~middle[:, :-1] & middle[:, 1:]).sum(axis=1).mean() if columns > 1 else 0.0
    shares = ink.mean(axis=0)
    return Texture(
        ink=float(ink.mean()),
        strokes=float(starts) * rows / columns,
        longest_line=max(_longest_run(row) for row in ink) / columns,
        uniform_columns=float(np.abs(2 * shares - 1).mean()),
    )


def upright_patch(outline: NDArray[np.float32], gray: Gray) -> Gray:
    """The pixels of the smallest rectangle around an outline, its longer side level, one pixel each."""
    # A label can reach far beyond the page, where there is nothing to see and no end of pixels.
    reach = max(gray.shape)
    outline = np.clip(outline, -reach, 2 * reach)
    (cx, cy), (first, second), angle = cv2.minAreaRect(np.ascontiguousarray(outline, dtype=np.float32))
    if first < second:
        first, second, angle = second, first, angle + 90
    width, height = max(1, round(first)), max(1, round(second))
    turn = np.deg2rad(angle)
    along, across = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    corner = np.array([cx, cy]) - along * (width / 2) - across * (height / 2)
    # Pixel centres: the first pixel of the patch is half a pixel inside the rectangle.
    start = corner + (along + across) / 2 - 0.5
    matrix = np.column_stack([along, across, start])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    patch = cv2.warpAffine(gray, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(patch, dtype=np.uint8)


def _measure(outline: NDArray[np.float32], gray: Gray, page: Rectangle) -> Shape:
    (cx, cy), (first, second), angle = cv2.minAreaRect(np.ascontiguousarray(outline, dtype=np.float32))
    length, height = max(first, second), min(first, second)
    turned = angle if first >= second else angle + 90
    period = 180 if length > _LONE * height else 90
    turned = (turned + period / 2) % period - period / 2
    dark, paper, light = np.percentile(upright_patch(outline, gray), [_DARK, 50, _LIGHT])
    left, top, right, bottom = page
    return Shape(
        height=float(height),
        length=float(length),
        angle=float(turned),
        contrast=float(max(paper - dark, light - paper)),
        is_light=bool(light - paper > paper - dark),
        x=float((cx - left) / (right - left)),
        y=float((cy - top) / (bottom - top)),
    )


def _longest_run(row: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max()) if len(edges) else 0
