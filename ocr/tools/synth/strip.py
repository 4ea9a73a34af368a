"""The shape of a line of text on the paper: flat, turned, or bent on a circle, for its pixels and its outline alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Box = tuple[float, float, float, float]

# A pixel counts as ink from here on: under it, the eye sees the fringe of a glyph and not the glyph.
INK = 96


@dataclass(frozen=True, slots=True)
class Strip:
    """A box around ink in the frame of the drawn line, and the way from there to the paper.

    All coordinates are pixel centres: the ink of column 3 reaches from 2.5 to 3.5.

    >>> Strip((0, 0, 10, 4), pivot=(0, 0), origin=(100, 50)).outline(2).tolist()
    [[100.0, 50.0], [110.0, 50.0], [110.0, 54.0], [100.0, 54.0]]
    """

    box: Box
    """Left, top, right, bottom."""
    pivot: tuple[float, float] = (0.0, 0.0)
    """The point of the line's frame that is laid on `origin`; turning and bending leave it there."""
    origin: tuple[float, float] = (0.0, 0.0)
    angle: float = 0.0
    """Radians, clockwise as seen on the page."""
    radius: float = math.inf
    """Of the circle that the line follows: positive is an arch, negative a smile."""

    def to_paper(self, points: Points) -> Points:
        """From the line's frame to the paper."""
        across, down = (points - self.pivot).T
        if math.isfinite(self.radius):
            turn, reach = across / self.radius, self.radius - down
            across, down = reach * np.sin(turn), self.radius - reach * np.cos(turn)
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return np.stack([cos * across - sin * down, sin * across + cos * down], axis=1) + self.origin

    def from_paper(self, points: Points) -> Points:
        """The exact inverse of `to_paper`."""
        x, y = (points - self.origin).T
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        across, down = cos * x + sin * y, cos * y - sin * x
        if math.isfinite(self.radius):
            sign = math.copysign(1.0, self.radius)
            rise = self.radius - down
            turn = np.arctan2(sign * across, sign * rise)
            across, down = self.radius * turn, self.radius - sign * np.hypot(across, rise)
        return np.stack([across, down], axis=1) + self.pivot

    def outline(self, per_edge: int) -> Points:
        """The box on the paper: `per_edge` points along its top, then as many back along its bottom."""
        return self.to_paper(walk_box(self.box, per_edge))


def walk_box(box: Box, per_edge: int) -> Points:
    """Points along the top from left to right, then along the bottom from right to left."""
    left, top, right, bottom = box
    if per_edge == 2:
        return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
    across = np.linspace(left, right, per_edge)
    upper = np.stack([across, np.full(per_edge, top)], axis=1)
    lower = np.stack([across[::-1], np.full(per_edge, bottom)], axis=1)
    return np.concatenate([upper, lower])


def ink_box(coverage: NDArray[np.uint8]) -> Box | None:
    """The tight box of the ink; None if there is none."""
    x, y, width, height = cv2.boundingRect(np.asarray(coverage >= INK, dtype=np.uint8))
    return None if width == 0 else (x - 0.5, y - 0.5, x + width - 0.5, y + height - 0.5)


def lay_down(coverage: NDArray[np.uint8], strip: Strip) -> tuple[NDArray[np.uint8], int, int]:
    """The drawn line as it is on the paper, and the paper's pixel (x, y) under its top left one."""
    if strip.angle == 0.0 and math.isinf(strip.radius):
        return coverage, round(strip.origin[0] - strip.pivot[0]), round(strip.origin[1] - strip.pivot[1])
    height, width = coverage.shape
    reach = strip.to_paper(walk_box((-1.0, -1.0, float(width), float(height)), 33))
    left, top = (int(bound) for bound in np.floor(reach.min(axis=0)))
    right, bottom = (int(bound) for bound in np.ceil(reach.max(axis=0)))
    columns, rows = np.meshgrid(np.arange(left, right + 1), np.arange(top, bottom + 1))
    source = strip.from_paper(np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64))
    maps = source.astype(np.float32).reshape(*columns.shape, 2)
    laid = cv2.remap(coverage, maps[..., 0], maps[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
    return np.asarray(laid, dtype=np.uint8), left, top
