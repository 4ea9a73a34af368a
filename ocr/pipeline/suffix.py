"""suffix: the random part. Geometry only draws matrices; `Warp` composes them and samples the pixels once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.checks import POSITIVE, SIDE, Range, check_numbers
from ocr.pipeline.pixels import ColourJitter as ColourJitter
from ocr.pipeline.pixels import JpegNoise as JpegNoise
from ocr.pipeline.pixels import RandomBlur as RandomBlur
from ocr.pipeline.placement import Matrix, Placement, Window
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import NO_IMAGE, PageView, Sample
from ocr.pipeline.sampling import Sampling, SamplingStage
from ocr.pipeline.stage import Chance, Stage


class RandomGeometry(Chance):
    """A random stage that draws a 3x3 matrix, in pixel centres, and keeps the size of the page."""

    __slots__ = ()

    def apply(self, sample: Sample, parameters: Matrix) -> Sample:
        return _warp_alone(sample, Placement.start(sample.view).then(parameters))


@dataclass(frozen=True, slots=True)
class TextAwareCrop(Chance):
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
class Warp(SamplingStage):
    """A crop, several geometric stages and a second letterbox, in one sampling of pixels."""

    steps: tuple[RandomGeometry, ...]
    crop: TextAwareCrop | None = None
    fill: int = 0
    size: int | None = None
    """Side of the square that comes out; None to keep the size of the page."""

    def draw(self, rng: np.random.Generator, page: PageView) -> Placement | None:
        window: Window | None = self.crop.draw(rng, page) if self.crop else None
        placement = Placement.start(page, window)
        for step in self.steps:
            matrix: Matrix | None = step.draw(rng, placement.page)
            if matrix is not None:
                placement = placement.then(matrix)
        out = (self.size or page.width, self.size or page.height)
        if out != (page.width, page.height):
            placement = placement.then(Window(0, 0, page.width, page.height).fill_page(*out), out)
        return placement.visible() if placement.moves else None

    def join(self, sampling: Sampling, parameters: Placement) -> Sampling | None:
        return sampling.placed(parameters, self.fill)

    def follow(self, sample: Sample, parameters: Placement) -> Sample:
        return parameters.follow(sample, NO_IMAGE)

    def change(self, image_hwc: NDArray[Any], parameters: Placement) -> NDArray[Any]:
        left, top, right, bottom = parameters.window
        out = (parameters.page.width, parameters.page.height)
        # Sampling from the window alone turns everything around it into border, so no cut words remain visible.
        shown, border = image_hwc[top:bottom, left:right], (self.fill,) * 3
        return np.asarray(cv2.warpAffine(shown, parameters.from_window[:2], out, borderValue=border))


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
        # After a first letterbox pages are square, so a second one only changes their size.
        square = any(isinstance(before, Letterbox) for before in merged)
        if isinstance(last, Warp) and last.size:
            last = None
        if isinstance(stage, Letterbox) and isinstance(last, Warp) and square:
            merged[-1] = replace(last, size=stage.size)
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
    """Scale about the centre by a factor between `smallest` and `largest`."""

    smallest: float = 0.7
    largest: float = 1.4
    p: float = 0.5
    ranges: ClassVar = {"smallest": POSITIVE, "largest": POSITIVE}
    ascending: ClassVar = ("smallest", "largest")

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        # Uniform in the logarithm: halving is as likely as doubling.
        factor = np.exp(rng.uniform(np.log(self.smallest), np.log(self.largest)))
        return _about_centre(factor, 0.0, page)


def _about_centre(cos: float, sin: float, page: PageView) -> Matrix:
    x, y = (page.width - 1) / 2, (page.height - 1) / 2
    return np.array([[cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y], [0, 0, 1]])


@dataclass(frozen=True, slots=True)
class RandomWindow(SamplingStage):
    """Cut out a square of `size` pixels, somewhere around a word: a part of the page in full resolution.

    Words on its border are cut, in pixels and maps alike. A page smaller than the window is left alone.
    """

    size: int = 512

    def __post_init__(self) -> None:
        check_numbers(self, size=SIDE)

    def draw(self, rng: np.random.Generator, page: PageView) -> Placement | None:
        if min(page.width, page.height) < self.size:
            return None
        bounds = page.polygons.bounds
        spare = np.array([page.width, page.height]) - self.size
        if len(bounds):
            # The window holds the middle of a random word, so that few windows are empty.
            word = bounds[rng.integers(len(bounds))]
            low = np.floor((word[:2] + word[2:]) / 2 - rng.uniform(0.1, 0.9, 2) * self.size)
        else:
            low = np.floor(rng.uniform(0, spare + 1))
        left, top = np.clip(low, 0, spare).astype(int).tolist()
        window = Window(left, top, left + self.size, top + self.size)
        touched = page.polygons.select(window.touches(bounds))
        shift = np.array([[1.0, 0, -left], [0, 1, -top], [0, 0, 1]])
        return Placement(window, shift, PageView(touched.moved(shift), self.size, self.size))

    def join(self, sampling: Sampling, parameters: Placement) -> Sampling:
        return sampling.cut(parameters.window)

    def follow(self, sample: Sample, parameters: Placement) -> Sample:
        return parameters.follow(sample, NO_IMAGE)

    def change(self, image_hwc: NDArray[Any], parameters: Placement) -> NDArray[Any]:
        left, top, right, bottom = parameters.window
        return np.ascontiguousarray(image_hwc[top:bottom, left:right])
