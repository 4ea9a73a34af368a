"""The random stages of the suffix that change pixels and leave every polygon where it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from ocr.checks import SHARE, Range
from ocr.pipeline.sample import Array, PageView, Sample
from ocr.pipeline.stage import Probabilistic
from ocr.pipeline.warp import OnePassStage, WarpPass

# Pixels; a narrower Gaussian changes nothing.
MIN_SIGMA = 0.2


class RandomPixels(Probabilistic):
    """A random stage that leaves every polygon where it is."""

    __slots__ = ()
    moves_geometry = False


class Colours(NamedTuple):
    """A linear change of colours: `matrix @ pixel + shift`."""

    matrix: NDArray[np.float64]
    """(3, 3)"""
    shift: float


@dataclass(frozen=True, slots=True)
class ColourJitter(RandomPixels, OnePassStage):
    """Change brightness, contrast and saturation, each by up to its share, in one matrix product."""

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2
    p: float = 0.5
    ranges: ClassVar = {"brightness": SHARE, "contrast": SHARE, "saturation": SHARE}

    def choose(self, rng: np.random.Generator, page: PageView) -> Colours:
        brightness, contrast, saturation = (
            1 + rng.uniform(-share, share) for share in (self.brightness, self.contrast, self.saturation)
        )
        gray = np.tile([0.299, 0.587, 0.114], (3, 1))
        matrix = brightness * contrast * (saturation * np.eye(3) + (1 - saturation) * gray)
        return Colours(matrix, 127.5 * (1 - contrast))

    def join(self, warp: WarpPass, parameters: Colours) -> WarpPass | None:
        return warp.coloured(*parameters)

    def change(self, image_hwc: Array, parameters: Colours) -> Array:
        matrix, shift = parameters
        if image_hwc.dtype == np.uint8:
            return np.asarray(cv2.transform(image_hwc, np.column_stack([matrix, [shift] * 3])))
        # Floats are 0 to 1, as Albumentations has them; bytes are cut to their range, too.
        changed = cv2.transform(image_hwc, np.column_stack([matrix, [shift / 255] * 3]))
        return np.asarray(changed).clip(0, 1)


@dataclass(frozen=True, slots=True)
class RandomBlur(RandomPixels):
    """Blur with a Gaussian of up to `sigma` pixels."""

    sigma: float = 1.2
    p: float = 0.2
    ranges: ClassVar = {"sigma": Range(MIN_SIGMA)}

    def choose(self, rng: np.random.Generator, page: PageView) -> float:
        """The standard deviation of the Gaussian, in pixels."""
        return rng.uniform(MIN_SIGMA, self.sigma)

    def apply(self, sample: Sample, parameters: float) -> Sample:
        return replace(sample, image=cv2.GaussianBlur(sample.image, (0, 0), parameters))


@dataclass(frozen=True, slots=True)
class JpegNoise(RandomPixels):
    """Leave the traces of a JPEG of quality `worst` to `best`."""

    worst: int = 40
    best: int = 90
    p: float = 0.2
    ranges: ClassVar = {"worst": Range(1, 100, whole=True), "best": Range(1, 100, whole=True)}
    ascending: ClassVar = ("worst", "best")

    def choose(self, rng: np.random.Generator, page: PageView) -> int:
        """The quality of the JPEG."""
        return int(rng.integers(self.worst, self.best + 1))

    def apply(self, sample: Sample, parameters: int) -> Sample:
        encoded = simplejpeg.encode_jpeg(np.ascontiguousarray(sample.image), parameters, "RGB", "420")
        return replace(sample, image=simplejpeg.decode_jpeg(encoded, "RGB"))


class Shadow(NamedTuple):
    """Light that falls by `darkness` across a soft straight edge: `x * across[0] + y * across[1]` from 0 to 1."""

    across: tuple[float, float]
    start: float
    darkness: float


@dataclass(frozen=True, slots=True)
class RandomShadow(RandomPixels):
    """Darken one side of a soft straight edge by up to `darkest`, as a hand or a telephone over the page does."""

    darkest: float = 0.5
    p: float = 0.2
    ranges: ClassVar = {"darkest": SHARE}

    def choose(self, rng: np.random.Generator, page: PageView) -> Shadow:
        angle = rng.uniform(0, 2 * np.pi)
        # From a hard edge of a few pixels to a gradient over half of the page.
        width = rng.uniform(0.01, 0.5) * max(page.width, page.height)
        x, y = float(np.cos(angle)) / width, float(np.sin(angle)) / width
        start = x * rng.uniform(0, page.width) + y * rng.uniform(0, page.height)
        return Shadow((x, y), float(start), float(rng.uniform(0, self.darkest)))

    def apply(self, sample: Sample, parameters: Shadow) -> Sample:
        height, width = sample.image.shape[:2]
        (x, y), start, darkness = parameters
        depth = np.arange(width, dtype=np.float32) * x + (np.arange(height, dtype=np.float32) * y - start)[:, None]
        light = (1 - darkness * depth.clip(0, 1)).astype(np.float32)
        shaded = sample.image * light[:, :, None]
        is_bytes = sample.image.dtype == np.uint8
        return replace(sample, image=np.rint(shaded).astype(np.uint8) if is_bytes else shaded)
