"""suffix: the random part. Geometry only draws matrices; `Warp` composes them and samples the pixels once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.checks import POSITIVE, SIDE, Range, check_numbers
from ocr.pipeline.pixels import ColourJitter as ColourJitter
from ocr.pipeline.pixels import JpegNoise as JpegNoise
from ocr.pipeline.pixels import RandomBlur as RandomBlur
from ocr.pipeline.pixels import RandomShadow as RandomShadow
from ocr.pipeline.prefix import Letterbox, scaled_sizes
from ocr.pipeline.sample import Array, PageView, Sample
from ocr.pipeline.stage import Probabilistic, Sizes, Stage
from ocr.pipeline.warp import Matrix, OnePassStage, Placement, WarpPass, Window, is_affine

CAMERA_DISTANCE = 1.0
"""From the camera to the page, in longest sides of the page: from here a telephone's lens just sees all of it."""


class RandomGeometry(Probabilistic):
    """A random stage that draws a 3x3 matrix, in pixel centres."""

    __slots__ = ()
    is_affine = True
    """Whether all its matrices are; others have no operator in DALI."""

    def size(self, matrix: Matrix, page: PageView) -> tuple[int, int]:
        """(width, height) of what comes out: those of the page, unless the stage changes them."""
        return page.width, page.height

    def apply(self, sample: Sample, parameters: Matrix) -> Sample:
        start = Placement.start(sample.view)
        return _warp_alone(sample, start.then(parameters, self.size(parameters, start.page)))


@dataclass(frozen=True, slots=True)
class TextAwareCrop(Probabilistic):
    """Cut out a window whose borders pass between the words, and scale it to fill the page.

    Text marked ignore may be cut; every other polygon is either inside the window or outside.
    """

    smallest: float = 0.3
    """Shortest side of the window, as a share of the page's."""
    p: float = 0.5
    tries: int = 10
    ranges: ClassVar = {"smallest": Range(0, 1, above=True), "tries": Range(1, whole=True)}

    def choose(self, rng: np.random.Generator, page: PageView) -> Window | None:
        """A window that holds text, or any window of a page without text; None if none was found."""
        text = page.polygons.select(~page.polygons.ignore)
        bounds = text.bounds
        free_x = _free_columns(bounds[:, 0], bounds[:, 2], page.width)
        free_y = _free_columns(bounds[:, 1], bounds[:, 3], page.height)
        for _ in range(self.tries):
            # What `rng.choice` draws, in half of its time.
            left, right = sorted(free_x[rng.integers(0, len(free_x), 2)].tolist())
            top, bottom = sorted(free_y[rng.integers(0, len(free_y), 2)].tolist())
            window = Window(left + 1, top + 1, right, bottom)
            if right - left - 1 < self.smallest * page.width or bottom - top - 1 < self.smallest * page.height:
                continue
            if window.touches(bounds).any() or not len(text):
                return window
        return None

    def apply(self, sample: Sample, parameters: Window) -> Sample:
        return _warp_alone(sample, Placement.start(sample.view, parameters))


def _free_columns(low: NDArray[np.float32], high: NDArray[np.float32], length: int) -> NDArray[np.int64]:
    """Columns that no interval from `low` to `high` touches; -1 and `length`, just off the page, are always free."""
    taken = np.zeros(length + 3, dtype=np.int64)
    first = np.clip(np.floor(low), -1, length).astype(np.int64) + 1
    last = np.clip(np.ceil(high), -1, length).astype(np.int64) + 1
    np.add.at(taken, first, 1)
    np.add.at(taken, last + 1, -1)
    free = np.cumsum(taken)[: length + 2] == 0
    free[0] = free[-1] = True
    return np.flatnonzero(free) - 1


@dataclass(frozen=True, slots=True)
class Warp(OnePassStage):
    """A crop, several geometric stages and a second letterbox, in one sampling of pixels."""

    steps: tuple[RandomGeometry, ...]
    crop: TextAwareCrop | None = None
    fill: int = 0
    size: int | None = None
    """Longest side of what comes out; None to keep the size of the page."""
    shape: str = "square"
    """Of what comes out if it has another size: a square, or the page's own shape."""

    @property
    def is_affine(self) -> bool:
        """Whether parallel lines stay parallel."""
        return all(step.is_affine for step in self.steps)

    def draw(self, rng: np.random.Generator, page: PageView) -> Placement | None:
        window: Window | None = self.crop.draw(rng, page) if self.crop else None
        placement = Placement.start(page, window)
        for step in self.steps:
            matrix: Matrix | None = step.draw(rng, placement.page)
            if matrix is not None:
                placement = placement.then(matrix, step.size(matrix, placement.page))
        _, width, height = placement.page
        out = tuple(self._boxed(np.array([(width, height)]))[0].tolist())
        if out != (width, height):
            placement = placement.then(Window(0, 0, width, height).fill_page(*out), out)
        return placement.visible() if placement.moves else None

    @property
    def resizes(self) -> bool:
        """Whether pages of one size come out in several."""
        return self.size is None and any(getattr(step, "resizes", False) for step in self.steps)

    def sizes_after(self, sizes: Sizes) -> Sizes:
        for step in self.steps:
            sizes = step.sizes_after(sizes)
        return self._boxed(sizes)

    def _boxed(self, sizes: Sizes) -> Sizes:
        """After the second letterbox."""
        if self.size is None:
            return sizes
        return scaled_sizes(sizes, self.size) if self.shape == "page" else np.full_like(sizes, self.size)

    def join(self, warp: WarpPass, parameters: Placement) -> WarpPass | None:
        return warp.placed(parameters, self.fill)

    def follow(self, sample: Sample, parameters: Placement) -> Sample:
        return parameters.follow(sample)

    def change(self, image_hwc: Array, parameters: Placement) -> Array:
        left, top, right, bottom = parameters.window
        out = (parameters.page.width, parameters.page.height)
        # Sampling from the window alone turns everything around it into border, so no cut words remain visible.
        shown, border = image_hwc[top:bottom, left:right], (self.fill,) * 3
        matrix = parameters.from_window
        if is_affine(matrix):
            return np.asarray(cv2.warpAffine(shown, matrix[:2], out, borderValue=border))
        return np.asarray(cv2.warpPerspective(shown, matrix, out, borderValue=border))


def _warp_alone(sample: Sample, placement: Placement) -> Sample:
    """A geometric stage that was not merged into a warp with others."""
    return Warp(()).apply(sample, placement.visible()) if placement.moves else sample


def merge_geometry(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Replace every run of geometric stages, with a crop before and a second letterbox after it, by one warp.

    A warp fills what is outside the page with the letterbox's padding.
    """
    fill = next((stage.fill for stage in stages if isinstance(stage, Letterbox)), 0)
    merged: list[Stage] = []
    for stage in stages:
        last = merged[-1] if merged else None
        # After a first letterbox a second one of the same shape only changes the size of pages.
        same_shape = any(isinstance(before, Letterbox) and before.shape == _shape(stage) for before in merged)
        if isinstance(last, Warp) and last.size:
            last = None
        if isinstance(stage, Letterbox) and isinstance(last, Warp) and same_shape:
            merged[-1] = replace(last, size=stage.size, shape=stage.shape)
        elif isinstance(stage, TextAwareCrop):
            merged.append(Warp((), stage, fill))
        elif isinstance(stage, RandomGeometry):
            if isinstance(last, Warp):
                merged[-1] = replace(last, steps=(*last.steps, stage))
            else:
                merged.append(Warp((stage,), fill=fill))
        else:
            merged.append(stage)
    return tuple(merged)


def _shape(stage: Stage) -> str:
    return stage.shape if isinstance(stage, Letterbox) else ""


@dataclass(frozen=True, slots=True)
class RandomFlip(RandomGeometry):
    """Mirror left and right."""

    p: float = 0.5

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        # Pixel centres: column x moves to width - 1 - x, not width - x.
        return np.array([[-1.0, 0, page.width - 1], [0, 1, 0], [0, 0, 1]])


@dataclass(frozen=True, slots=True)
class RandomRotate(RandomGeometry):
    """Rotate about the centre by up to `degrees` either way."""

    degrees: float = 10.0
    p: float = 0.5
    ranges: ClassVar = {"degrees": Range(0, 180)}

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        angle = np.deg2rad(rng.uniform(-self.degrees, self.degrees))
        return _about_centre(np.cos(angle), np.sin(angle), page)


@dataclass(frozen=True, slots=True)
class RandomScale(RandomGeometry):
    """Scale by a factor between `smallest` and `largest`.

    The page keeps its size: about the centre, so that its borders are cut or become wider. With `resizes` the whole
    page becomes larger or smaller, for a window that is cut out of it afterwards.
    """

    smallest: float = 0.7
    largest: float = 1.4
    p: float = 0.5
    resizes: bool = False
    ranges: ClassVar = {"smallest": POSITIVE, "largest": POSITIVE}
    ascending: ClassVar = ("smallest", "largest")

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        # Uniform in the logarithm: halving is as likely as doubling.
        factor = np.exp(rng.uniform(np.log(self.smallest), np.log(self.largest)))
        matrix = _about_centre(factor, 0.0, page)
        width, height = self.size(matrix, page)
        matrix[:2, 2] += (width - page.width) / 2, (height - page.height) / 2
        return matrix

    def size(self, matrix: Matrix, page: PageView) -> tuple[int, int]:
        factor = float(matrix[0, 0]) if self.resizes else 1.0
        return max(1, round(page.width * factor)), max(1, round(page.height * factor))

    def sizes_after(self, sizes: Sizes) -> Sizes:
        """The largest that pages may have."""
        return np.rint(sizes * max(1.0, self.largest)).astype(np.int64) if self.resizes else sizes


def _about_centre(cos: float, sin: float, page: PageView) -> Matrix:
    x, y = (page.width - 1) / 2, (page.height - 1) / 2
    return np.array([[cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y], [0, 0, 1]])


@dataclass(frozen=True, slots=True)
class RandomWindow(OnePassStage):
    """Cut out a square of `size` pixels, somewhere around a word: a part of the page in full resolution.

    Words on its border are cut, in pixels and maps alike. A page smaller than the window is left alone; a page that is
    only narrower or lower than it is cut on the other side.
    """

    size: int = 512

    def __post_init__(self) -> None:
        check_numbers(self, size=SIDE)

    def draw(self, rng: np.random.Generator, page: PageView) -> Placement | None:
        width, height = min(page.width, self.size), min(page.height, self.size)
        if (width, height) == (page.width, page.height) != (self.size, self.size):
            return None
        bounds = page.polygons.bounds
        spare = np.array([page.width - width, page.height - height])
        if len(bounds):
            # The window holds the middle of a random word, so that few windows are empty.
            word = bounds[rng.integers(len(bounds))]
            low = np.floor((word[:2] + word[2:]) / 2 - rng.uniform(0.1, 0.9, 2) * self.size)
        else:
            low = np.floor(rng.uniform(0, spare + 1))
        left, top = np.clip(low, 0, spare).astype(int).tolist()
        window = Window(left, top, left + width, top + height)
        touched = page.polygons.select(window.touches(bounds))
        shift = np.array([[1.0, 0, -left], [0, 1, -top], [0, 0, 1]])
        return Placement(window, shift, PageView(touched.moved(shift), width, height))

    def sizes_after(self, sizes: Sizes) -> Sizes:
        return np.minimum(sizes, self.size)

    def join(self, warp: WarpPass, parameters: Placement) -> WarpPass:
        return warp.cut(parameters.window)

    def follow(self, sample: Sample, parameters: Placement) -> Sample:
        return parameters.follow(sample)

    def change(self, image_hwc: Array, parameters: Placement) -> Array:
        left, top, right, bottom = parameters.window
        return np.ascontiguousarray(image_hwc[top:bottom, left:right])


@dataclass(frozen=True, slots=True)
class RandomPerspective(RandomGeometry):
    """Photograph the page at an angle of up to `degrees`, sideways as well as up or down."""

    is_affine = False
    degrees: float = 15.0
    p: float = 0.3
    # Up to here the whole page is in front of the camera.
    ranges: ClassVar = {"degrees": Range(0, 40)}

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        aside, up = np.deg2rad(rng.uniform(-self.degrees, self.degrees, 2))
        about_y = np.array([[np.cos(aside), 0, np.sin(aside)], [0, 1, 0], [-np.sin(aside), 0, np.cos(aside)]])
        about_x = np.array([[1, 0, 0], [0, np.cos(up), -np.sin(up)], [0, np.sin(up), np.cos(up)]])
        tilted = about_y @ about_x
        # The page is a plane, so its third column never counts; what is nearer to the camera is larger.
        tilted[2] /= CAMERA_DISTANCE * max(page.width, page.height)
        tilted[:, 2] = 0, 0, 1
        to_centre = np.array([[1, 0, (1 - page.width) / 2], [0, 1, (1 - page.height) / 2], [0, 0, 1]])
        matrix: Matrix = np.linalg.inv(to_centre) @ tilted @ to_centre
        return matrix


@dataclass(frozen=True, slots=True)
class QuarterTurn(RandomGeometry):
    """Turn the page by 90, 180 or 270 degrees, exactly; a page that is not square changes its sides."""

    p: float = 0.5

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        right, bottom = page.width - 1, page.height - 1
        turns = (
            [[0, -1, bottom], [1, 0, 0], [0, 0, 1]],
            [[-1, 0, right], [0, -1, bottom], [0, 0, 1]],
            [[0, 1, 0], [-1, 0, right], [0, 0, 1]],
        )
        return np.array(turns[rng.integers(3)], dtype=np.float64)

    def size(self, matrix: Matrix, page: PageView) -> tuple[int, int]:
        return (page.height, page.width) if matrix[0, 0] == 0 else (page.width, page.height)
