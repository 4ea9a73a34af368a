"""Where geometry puts a page: the window that is cut out, the matrix that moves it, the polygons that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import PageView, Sample

Matrix = NDArray[np.float64]


def is_affine(matrix: Matrix) -> bool:
    """Whether parallel lines stay parallel: anything but a page seen at an angle."""
    return bool(matrix[2, 0] == 0 and matrix[2, 1] == 0)


class Window(NamedTuple):
    """Columns `left` to `right - 1` and rows `top` to `bottom - 1`."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    def touches(self, bounds: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which of the (P, 4) bounds reach into the window."""
        overlaps: NDArray[np.bool_] = np.all((bounds[:, :2] < self[2:]) & (bounds[:, 2:] >= self[:2]), axis=1)
        return overlaps

    def fill_page(self, width: int, height: int) -> Matrix:
        """The matrix that scales the window to the middle of a page, keeping its aspect ratio."""
        scale = min(width / self.width, height / self.height)
        x = (width - 1) / 2 - scale * (self.left + self.right - 1) / 2
        y = (height - 1) / 2 - scale * (self.top + self.bottom - 1) / 2
        return np.array([[scale, 0, x], [0, scale, y], [0, 0, 1]])

    @property
    def to_page(self) -> Matrix:
        """The matrix from the window's own pixels to those of the page."""
        return np.array([[1.0, 0, self.left], [0, 1, self.top], [0, 0, 1]])


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """What a geometric stage does to one page."""

    window: Window
    """The part of the page that is shown; everything around it becomes border."""
    matrix: Matrix
    """From the page's pixels to those that come out."""
    page: PageView
    """What comes out: its polygons and size."""

    @classmethod
    def start(cls, page: PageView, window: Window | None = None) -> Placement:
        """A page as it is, or a window of it that fills the page."""
        if window is None:
            return cls(Window(0, 0, page.width, page.height), np.eye(3), page)
        polygons = page.polygons.select(window.touches(page.polygons.bounds))
        return cls(window, np.eye(3), page._replace(polygons=polygons)).then(window.fill_page(page.width, page.height))

    def then(self, matrix: Matrix, size: tuple[int, int] | None = None) -> Placement:
        """Followed by another matrix, on a page of this (width, height) if it changes."""
        width, height = size or self.page[1:]
        page = PageView(_in_front(self.page.polygons, matrix).moved(matrix), width, height)
        return Placement(self.window, matrix @ self.matrix, page)

    @property
    def moves(self) -> bool:
        """Whether any pixel goes anywhere."""
        return not np.array_equal(self.matrix, np.eye(3))

    @property
    def from_window(self) -> Matrix:
        """From the pixels of the window to those that come out."""
        matrix: Matrix = self.matrix @ self.window.to_page
        return matrix

    def visible(self) -> Placement:
        """Without the polygons that are off the page."""
        polygons, width, height = self.page
        return replace(self, page=self.page._replace(polygons=polygons.select(polygons.on_page(width, height))))

    def follow(self, sample: Sample, image: NDArray[Any]) -> Sample:
        """The sample after its pixels were moved to `image`."""
        return replace(sample, polygons=self.page.polygons).placed(image, self.matrix)


def _in_front(polygons: Polygons, matrix: Matrix) -> Polygons:
    """Without those that reach behind the horizon, where division would mirror them onto the page."""
    if is_affine(matrix) or not len(polygons):
        return polygons
    depth = polygons.vertices @ matrix[2, :2] + matrix[2, 2]
    return polygons.select(np.minimum.reduceat(depth, polygons.offsets[:-1]) > 0)
