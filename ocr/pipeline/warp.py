"""warp: where geometry puts a page, and the one pass over its pixels that takes them there.

Random geometry only draws matrices. A `Placement` is their product with the polygons that follow it. A `WarpPass`
samples the pixels once, through the matrix, cut and coloured, where the batch wants them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.resample import sample_normalized_page, sample_page
from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import NO_IMAGE, Array, LazyImage, PageView, Sample
from ocr.pipeline.stage import RandomStage

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.pipeline.device import Normalize

Matrix = NDArray[np.float64]
SAME_COLOURS = np.empty((0, 4), dtype=np.float32)
MAX_BYTES = 2**31
"""Places of pixels are 32-bit numbers in the kernel."""


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

    def follow(self, sample: Sample, image: Array = NO_IMAGE) -> Sample:
        """The sample after its pixels were moved to `image`; without it they are yet to be made."""
        return replace(sample, polygons=self.page.polygons).placed(image, self.matrix)


def _in_front(polygons: Polygons, matrix: Matrix) -> Polygons:
    """Without those that reach behind the horizon, where division would mirror them onto the page."""
    if is_affine(matrix) or not len(polygons):
        return polygons
    depth = polygons.vertices @ matrix[2, :2] + matrix[2, 2]
    return polygons.select(np.minimum.reduceat(depth, polygons.offsets[:-1]) > 0)


@dataclass(frozen=True, slots=True, eq=False)
class WarpPass(LazyImage):
    """One pass over a page that is yet to be made: through a matrix, cut, coloured. It is made where it is written."""

    page: NDArray[np.uint8]
    """(H, W, 3), read-only."""
    window: Window
    """The part of the page that is shown; everything around it is `fill`."""
    matrix: Matrix
    """From the pixels that come out, before they are cut, to those of the window."""
    size: tuple[int, int]
    """(width, height) of what comes out."""
    corner: tuple[int, int] = (0, 0)
    """(x, y) of its first pixel, if it is cut."""
    fill: int = 0
    colours: NDArray[np.float32] = field(default_factory=lambda: SAME_COLOURS)
    """(3, 4): `colours[:, :3] @ pixel + colours[:, 3]`."""
    is_begun: bool = False
    """Whether any stage has joined."""

    @classmethod
    def of(cls, sample: Sample) -> WarpPass | None:
        """A pass that copies the page; None if its pixels do not fit: floats, or fewer than its polygons live in."""
        image, (width, height) = sample.image, sample.size
        if image.dtype != np.uint8 or image.shape != (height, width, 3) or not 0 < image.nbytes < MAX_BYTES:
            return None
        page = np.ascontiguousarray(image).view()
        page.flags.writeable = False
        return cls(page, Window(0, 0, width, height), np.eye(3), (width, height))

    def placed(self, placement: Placement, fill: int) -> WarpPass | None:
        """With geometry; None if pixels were changed before, because they can be sampled only once."""
        if self.is_begun:
            return None
        matrix: Matrix = np.linalg.inv(placement.from_window)  # type: ignore[assignment]
        if is_affine(placement.from_window):
            matrix[2] = 0, 0, 1  # Not up to rounding: the kernel depends on it.
        size = (placement.page.width, placement.page.height)
        return replace(self, window=placement.window, matrix=matrix, size=size, fill=fill, is_begun=True)

    def cut(self, window: Window) -> WarpPass:
        """With all but a window of what comes out left away."""
        corner = (self.corner[0] + window.left, self.corner[1] + window.top)
        return replace(self, corner=corner, size=(window.width, window.height), is_begun=True)

    def coloured(self, matrix: Matrix, shift: float) -> WarpPass | None:
        """With colours changed to `matrix @ pixel + shift`; None if they were changed before, and rounded."""
        if len(self.colours):
            return None
        colours = np.column_stack([matrix, [shift] * 3]).astype(np.float32)
        return replace(self, colours=colours, is_begun=True)

    def write(self, out: Array, normalize: Normalize | None = None) -> None:
        """Make the pass into (H, W, 3) bytes, or with `normalize` into (3, H, W) floats."""
        if not is_affine(self.matrix):
            self._after_perspective().write(out, normalize)
            return
        what = (self.page, _plain(self.window), self.matrix[:2], self.corner, self.fill, self.colours)
        if normalize is None:
            sample_page(*what, out)
        else:
            sample_normalized_page(*what, *normalize.offset_and_factor, out)

    def _after_perspective(self) -> WarpPass:
        """What is left to do once a projective matrix was applied: colours and normalisation."""
        (width, height), (left, top, right, bottom) = self.size, self.window
        matrix = self.matrix @ np.array([[1, 0, self.corner[0]], [0, 1, self.corner[1]], [0, 0, 1]])
        shown, border = self.page[top:bottom, left:right], (self.fill,) * 3
        how = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        page = np.asarray(cv2.warpPerspective(shown, matrix, (width, height), flags=how, borderValue=border), np.uint8)
        depth = np.add.outer(matrix[2, 1] * np.arange(height), matrix[2, 0] * np.arange(width) + matrix[2, 2])
        page[depth <= 0] = self.fill  # Behind the horizon there is no page, but its mirror image.
        page.flags.writeable = False
        return replace(self, page=page, window=Window(0, 0, width, height), matrix=np.eye(3), corner=(0, 0))


def _plain(window: Window) -> tuple[int, int, int, int]:
    """As the kernels are compiled for."""
    return int(window.left), int(window.top), int(window.right), int(window.bottom)


class OnePassStage(RandomStage):
    """A random stage that can share one pass over the pixels with its neighbours."""

    __slots__ = ()

    @abstractmethod
    def join(self, warp: WarpPass, parameters: Any) -> WarpPass | None:
        """The pass followed by this stage; None if the stage needs the pixels that the pass makes."""

    @abstractmethod
    def change(self, image_hwc: Array, parameters: Any) -> Array:
        """The pixels changed as drawn; only called if a pass cannot do it, because they are floats."""

    def follow(self, sample: Sample, parameters: Any) -> Sample:
        """The sample changed as drawn; its pixels do not count."""
        return sample

    def apply(self, sample: Sample, parameters: Any) -> Sample:
        return self.apply_later(sample, parameters).unpacked()

    def apply_later(self, sample: Sample, parameters: Any) -> Sample:
        """Like `apply`, bit for bit, but the last pass over the pixels is left to whoever knows where they go."""
        joined = self._joined(sample, parameters)
        if joined is None and sample.lazy is not None:
            sample = sample.unpacked()
            joined = self._joined(sample, parameters)
        if joined is None:
            return replace(self.follow(sample, parameters), image=self.change(sample.image, parameters))
        return replace(self.follow(sample, parameters), image=NO_IMAGE, lazy=joined, reduced_from=None)

    def run(self, sample: Sample, rng: np.random.Generator) -> Sample:
        parameters = self.draw(rng, sample.view)
        return sample if parameters is None else self.apply_later(sample, parameters)

    def _joined(self, sample: Sample, parameters: Any) -> WarpPass | None:
        begun = sample.lazy if isinstance(sample.lazy, WarpPass) else WarpPass.of(sample)
        return None if begun is None else self.join(begun, parameters)
