"""The path of a line of text from its own frame to the paper and to the page, for its pixels and its outline alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.geometry.polygons import move_points

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


# An outline can leave the line it stands for by this many pixels: under half the margin of the smallest text.
TOLERANCE = 0.4
# Points along each long edge of a curved line; twice as many in its polygon.
CURVED_EDGES = (4, 5, 6, 7)
# The middle of every chord of every choice above is one of these points.
_DENSE = 121


@dataclass(frozen=True, slots=True, eq=False)
class PageMap:
    """A wave of the paper (each column moves up or down as one), then a perspective."""

    matrix: NDArray[np.float64]
    amplitude: float = 0.0
    """Pixels of the paper."""
    wavelength: float = 1.0
    phase: float = 0.0

    @property
    def is_identity(self) -> bool:
        """Whether the page is the paper, pixel by pixel."""
        return self.amplitude == 0.0 and bool(np.array_equal(self.matrix, np.eye(3)))

    def lift(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """How far down the wave moves the column x."""
        turn = np.float32(2 * math.pi / self.wavelength)
        return np.asarray(np.float32(self.amplitude) * np.sin(turn * x + np.float32(self.phase)), dtype=np.float32)

    def to_page(self, points: Points) -> Points:
        """Points of the paper on the page."""
        lifted = points.astype(np.float32)
        if self.amplitude:
            lifted[:, 1] += self.lift(lifted[:, 0])
        return move_points(lifted, self.matrix).astype(np.float64)

    def warp(self, paper: NDArray[np.uint8], page: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Draw the paper on a copy of its background."""
        if self.is_identity:
            return paper
        height, width = page.shape[:2]
        if not self.amplitude:
            warped = cv2.warpPerspective(
                paper,
                self.matrix,
                (width, height),
                dst=page.copy(),
                flags=cv2.INTER_LINEAR,
                borderMode=cv2.BORDER_TRANSPARENT,
            )
        else:
            x, y = self._sources(width, height)
            warped = cv2.remap(paper, x, y, cv2.INTER_LINEAR, dst=page.copy(), borderMode=cv2.BORDER_TRANSPARENT)
        return np.asarray(warped, dtype=np.uint8)

    def _sources(self, width: int, height: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The paper's coordinates under every pixel of the page."""
        inverse = np.linalg.inv(self.matrix)
        inverse = (inverse / inverse[2, 2]).astype(np.float32)
        column = np.arange(width, dtype=np.float32)[None]
        row = np.arange(height, dtype=np.float32)[:, None]
        depth = np.reciprocal(inverse[2, 0] * column + (inverse[2, 1] * row + np.float32(1)))
        x = (inverse[0, 0] * column + (inverse[0, 1] * row + inverse[0, 2])) * depth
        y = (inverse[1, 0] * column + (inverse[1, 1] * row + inverse[1, 2])) * depth
        y -= self.lift(x)
        return x, y


def trace(strip: Strip, page_map: PageMap) -> Points:
    """The line's polygon on the page: 4 points if its edges are straight, 8 to 14 if not."""
    corners = page_map.to_page(strip.outline(2))
    if math.isinf(strip.radius) and not page_map.amplitude:
        return corners
    dense = page_map.to_page(strip.outline(_DENSE))
    edges = dense[:_DENSE], dense[_DENSE:]
    if max(_sag(edge, 2) for edge in edges) <= TOLERANCE:
        return corners
    # The points of a curved outline are moved out by half the sag, so that it leaves the line by the other half.
    enough = (count for count in CURVED_EDGES if max(_sag(edge, count) for edge in edges) <= 2 * TOLERANCE)
    per_edge = next(enough, CURVED_EDGES[-1])
    return np.concatenate([_balanced(edge, per_edge) for edge in edges])


def _departures(edge: Points, per_edge: int) -> tuple[NDArray[np.float64], Points]:
    """How far the curve runs from each chord, (chords, steps), and the chords' unit normals, (chords, 2)."""
    step = (_DENSE - 1) // (per_edge - 1)
    start, chord = edge[:-1:step], edge[step::step] - edge[:-1:step]
    normals = np.stack([-chord[:, 1], chord[:, 0]], axis=1) / np.hypot(*chord.T)[:, None]
    along = edge[:-1].reshape(per_edge - 1, step, 2) - start[:, None]
    return np.einsum("csx,cx->cs", along, normals), normals


def _sag(edge: Points, per_edge: int) -> float:
    return float(np.abs(_departures(edge, per_edge)[0]).max())


def _balanced(edge: Points, per_edge: int) -> Points:
    departures, normals = _departures(edge, per_edge)
    sags = departures[:, departures.shape[1] // 2, None] * normals
    averaged = np.concatenate([sags[:1], (sags[:-1] + sags[1:]) / 2, sags[-1:]])
    return np.asarray(edge[:: departures.shape[1]] + averaged / 2, dtype=np.float64)
