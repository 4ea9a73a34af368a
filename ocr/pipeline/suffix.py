"""suffix: the random part. Geometry only proposes matrices; `Warp` composes them and samples the pixels once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.checks import POSITIVE, SIDE, Range, check_numbers
from ocr.geometry.polygons import Polygons
from ocr.pipeline.pixels import ColourJitter as ColourJitter
from ocr.pipeline.pixels import JpegNoise as JpegNoise
from ocr.pipeline.pixels import RandomBlur as RandomBlur
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import Chance, RandomStage, Stage

Matrix = NDArray[np.float64]


class RandomGeometry(Chance):
    """A random stage that is a 3x3 matrix on the page, whose size it keeps."""

    __slots__ = ()

    @abstractmethod
    def propose(self, polygons: Polygons, width: int, height: int, rng: np.random.Generator) -> Matrix | None:
        """The matrix for a page with these polygons, in pixel centres; None to leave the page alone."""

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        return Warp((self,))(sample, rng)


@dataclass(frozen=True, slots=True)
class TextAwareCrop(Chance):
    """Cut out a window whose borders pass between the words, and scale it to fill the page.

    Text marked ignore may be cut; every other polygon is wholly inside the window or wholly outside.
    """

    smallest: float = 0.3
    """Shortest side of the window, as a share of the page's."""
    p: float = 0.5
    tries: int = 10
    ranges: ClassVar = {"smallest": Range(0, 1, above=True), "tries": Range(1, whole=True)}

    def choose(self, polygons: Polygons, width: int, height: int, rng: np.random.Generator) -> Window | None:
        """A window that holds some text, or any window of a page without; None to leave the page alone."""
        if rng.random() >= self.p:
            return None
        text = polygons.select(~polygons.ignore)
        bounds = text.bounds
        free_x = _free_columns(bounds[:, 0], bounds[:, 2], width)
        free_y = _free_columns(bounds[:, 1], bounds[:, 3], height)
        for _ in range(self.tries):
            left, right = np.sort(rng.choice(free_x, 2)).tolist()
            top, bottom = np.sort(rng.choice(free_y, 2)).tolist()
            window = Window(left + 1, top + 1, right, bottom)
            if right - left - 1 < self.smallest * width or bottom - top - 1 < self.smallest * height:
                continue
            if window.touches(bounds).any() or not len(text):
                return window
        return None

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        return Warp((), self)(sample, rng)


class Window(NamedTuple):
    """Columns `left` to `right - 1` and rows `top` to `bottom - 1`."""

    left: int
    top: int
    right: int
    bottom: int

    def touches(self, bounds: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which of the (P, 4) bounds reach into the window."""
        overlaps: NDArray[np.bool_] = np.all((bounds[:, :2] < self[2:]) & (bounds[:, 2:] >= self[:2]), axis=1)
        return overlaps

    def fill_page(self, width: int, height: int) -> Matrix:
        """Scale the window, in its own ratio, to the middle of a page."""
        scale = min(width / (self.right - self.left), height / (self.bottom - self.top))
        x = (width - 1) / 2 - scale * (self.left + self.right - 1) / 2
        y = (height - 1) / 2 - scale * (self.top + self.bottom - 1) / 2
        return np.array([[scale, 0, x], [0, scale, y], [0, 0, 1]])


def _free_columns(low: NDArray[np.float32], high: NDArray[np.float32], length: int) -> NDArray[np.int64]:
    """Columns that no interval from `low` to `high` touches; -1 and `length`, just off the page, always count."""
    taken = np.zeros(length + 3, dtype=np.int64)
    first = np.clip(np.floor(low), -1, length).astype(np.int64) + 1
    last = np.clip(np.ceil(high), -1, length).astype(np.int64) + 1
    np.add.at(taken, first, 1)
    np.add.at(taken, last + 1, -1)
    free = np.cumsum(taken)[: length + 2] == 0
    free[0] = free[-1] = True
    return np.flatnonzero(free) - 1


@dataclass(frozen=True, slots=True)
class Warp(RandomStage):
    """Several geometric stages, a crop in front of them and a letterbox behind, in one sampling of pixels."""

    steps: tuple[RandomGeometry, ...]
    crop: TextAwareCrop | None = None
    fill: int = 0
    size: int | None = None
    """Side of the square that comes out; None for that of the page."""

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        width, height = sample.width, sample.height
        polygons, total = sample.polygons, np.eye(3)
        window = self.crop.choose(polygons, width, height, rng) if self.crop else None
        if window:
            total = window.fill_page(width, height)
            polygons = polygons.select(window.touches(polygons.bounds)).moved(total)
        for step in self.steps:
            matrix = step.propose(polygons, width, height, rng)
            if matrix is not None:
                total = matrix @ total
                polygons = polygons.moved(matrix)
        out = (self.size, self.size) if self.size else (width, height)
        if out != (width, height):
            fit = Window(0, 0, width, height).fill_page(*out)
            total = fit @ total
            polygons = polygons.moved(fit)
        if np.array_equal(total, np.eye(3)):
            return sample
        left, top, right, bottom = window or Window(0, 0, width, height)
        # Sampling from the window alone makes everything around it border, so no half words stay in sight.
        from_window = total @ np.array([[1.0, 0, left], [0, 1, top], [0, 0, 1]])
        image = cv2.warpAffine(sample.image[top:bottom, left:right], from_window[:2], out, borderValue=(self.fill,) * 3)
        polygons = polygons.select(polygons.on_page(*out))
        return replace(sample, polygons=polygons).placed(np.asarray(image), total)


def merge_geometry(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Replace every run of geometric stages, from a crop to a second letterbox if there are any, by one warp.

    What a warp shows beyond the page is what the letterbox padded it with.
    """
    fill = next((stage.fill for stage in stages if isinstance(stage, Letterbox)), 0)
    merged: list[Stage] = []
    for stage in stages:
        last = merged[-1] if merged else None
        # Behind a first letterbox pages are square, and a second one has only their size to change.
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

    def propose(self, polygons: Polygons, width: int, height: int, rng: np.random.Generator) -> Matrix | None:
        if rng.random() >= self.p:
            return None
        # Pixel centres: column x moves to width - 1 - x, not width - x.
        return np.array([[-1.0, 0, width - 1], [0, 1, 0], [0, 0, 1]])


@dataclass(frozen=True, slots=True)
class RandomRotate(RandomGeometry):
    """Turn about the centre by up to `degrees` either way."""

    degrees: float = 10.0
    p: float = 0.5
    ranges: ClassVar = {"degrees": Range(0, 180)}

    def propose(self, polygons: Polygons, width: int, height: int, rng: np.random.Generator) -> Matrix | None:
        if rng.random() >= self.p:
            return None
        angle = np.deg2rad(rng.uniform(-self.degrees, self.degrees))
        return _about_centre(np.cos(angle), np.sin(angle), width, height)


@dataclass(frozen=True, slots=True)
class RandomScale(RandomGeometry):
    """Scale about the centre by a factor between `smallest` and `largest`."""

    smallest: float = 0.7
    largest: float = 1.4
    p: float = 0.5
    ranges: ClassVar = {"smallest": POSITIVE, "largest": POSITIVE}
    ascending: ClassVar = ("smallest", "largest")

    def propose(self, polygons: Polygons, width: int, height: int, rng: np.random.Generator) -> Matrix | None:
        if rng.random() >= self.p:
            return None
        # Uniform in the logarithm: halving is as likely as doubling.
        factor = np.exp(rng.uniform(np.log(self.smallest), np.log(self.largest)))
        return _about_centre(factor, 0.0, width, height)


def _about_centre(cos: float, sin: float, width: int, height: int) -> Matrix:
    x, y = (width - 1) / 2, (height - 1) / 2
    return np.array([[cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y], [0, 0, 1]])


@dataclass(frozen=True, slots=True)
class RandomWindow(RandomStage):
    """Cut out a square of `size` pixels, somewhere around a word: a part of the page in full resolution.

    Words on its border are cut, pixels and maps alike. A page smaller than the window is left alone.
    """

    size: int = 512

    def __post_init__(self) -> None:
        check_numbers(self, size=SIDE)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        if min(sample.width, sample.height) < self.size:
            return sample
        bounds = sample.polygons.bounds
        spare = np.array([sample.width, sample.height]) - self.size
        if len(bounds):
            # Somewhere that holds the middle of a word drawn at random, so that few windows are empty.
            word = bounds[rng.integers(len(bounds))]
            low = np.floor((word[:2] + word[2:]) / 2 - rng.uniform(0.1, 0.9, 2) * self.size)
        else:
            low = np.floor(rng.uniform(0, spare + 1))
        left, top = np.clip(low, 0, spare).astype(int).tolist()
        window = Window(left, top, left + self.size, top + self.size)
        polygons = sample.polygons.select(window.touches(bounds))
        shift = np.array([[1.0, 0, -left], [0, 1, -top], [0, 0, 1]])
        image = np.ascontiguousarray(sample.image[window.top : window.bottom, window.left : window.right])
        return replace(sample, polygons=polygons.moved(shift)).placed(image, shift)
