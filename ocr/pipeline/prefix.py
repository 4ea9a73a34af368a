"""prefix: the fixed part of the path, from encoded bytes to the page that is cached."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.checks import SIDE, Range, check_numbers, check_word
from ocr.errors import ConfigError
from ocr.pipeline.decode import Decode
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage, Sizes
from ocr.pipeline.timing import timed

INTERPOLATIONS = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "cubic": cv2.INTER_CUBIC}
POSITIONS = ("center", "top_left", "top_right", "bottom_left", "bottom_right")
SHAPES = ("square", "page")


@dataclass(frozen=True, slots=True)
class FixedPart:
    """Decode a page and run its fixed stages; holds no reference to the dataset, and is sent to other machines."""

    decode: Decode
    stages: tuple[FixedStage, ...] = ()

    def __call__(self, raw: Sample) -> Sample:
        with timed("decode"):
            page = self.decode(raw)
        return self._run(page)

    def measure(self, raw: Sample) -> Sample:
        """The page for the sake of its geometry; pixels are not decoded if the first stage is a letterbox."""
        return self(raw) if self.decode.needed_side is None else self._run(self.decode.measure(raw))

    @property
    def parts(self) -> tuple[FixedStage, ...]:
        """All that the output depends on, for its fingerprint."""
        return (self.decode, *self.stages)

    def _run(self, page: Sample) -> Sample:
        for stage in self.stages:
            with timed(type(stage).__name__):
                page = stage(page)
        return page


@dataclass(frozen=True, slots=True)
class Letterbox(FixedStage):
    """Scale the longest side to `size`, pad to a square. Fixed: same page in, same page out.

    With `shape="page"` the page keeps its aspect and nothing is padded here: its batch pads it, on the right and at the
    bottom, to multiples of 32, and masks the padding out of the loss.
    """

    size: int = 640
    position: str = "center"
    fill: int = 0
    interpolation: str = "linear"
    shape: str = "square"

    def __post_init__(self) -> None:
        check_numbers(self, size=SIDE, fill=Range(0, 255, whole=True))
        check_word(self, "position", POSITIONS)
        check_word(self, "interpolation", INTERPOLATIONS)
        check_word(self, "shape", SHAPES)
        if self.shape == "page" and self.position not in ("center", "top_left"):
            raise ConfigError(
                f"{self!r}: position={self.position} is for shape=square; a page with its own shape is at the top left",
                setting="Letterbox.position",
                value=self.position,
            )

    def __call__(self, sample: Sample) -> Sample:
        # The geometry follows the page's full size, so a page decoded smaller has the same polygons.
        page_width, page_height = sample.size
        scale = self.size / max(page_width, page_height)
        width, height = scaled_sizes(np.array([sample.size]), self.size)[0].tolist()
        out_width, out_height = (self.size, self.size) if self.shape == "square" else (width, height)
        left, top = self._corner(out_width - width, out_height - height)
        canvas = np.full((out_height, out_width, 3), self.fill, dtype=sample.image.dtype)
        window = canvas[top : top + height, left : left + width]
        if sample.image.shape == window.shape:
            window[:] = sample.image
        else:
            cv2.resize(sample.image, (width, height), dst=window, interpolation=self._flag(scale))
        return sample.moved(canvas, np.array([[scale, 0, left], [0, scale, top], [0, 0, 1]]))

    def sizes_after(self, sizes: Sizes) -> Sizes:
        return scaled_sizes(sizes, self.size) if self.shape == "page" else np.full_like(sizes, self.size)

    def _flag(self, scale: float) -> int:
        # Averaging is for shrinking; enlarging with it makes a page blocky.
        return INTERPOLATIONS["linear" if self.interpolation == "area" and scale > 1 else self.interpolation]

    def _corner(self, spare_x: int, spare_y: int) -> tuple[int, int]:
        if self.position == "center":
            return spare_x // 2, spare_y // 2
        return spare_x * ("right" in self.position), spare_y * ("bottom" in self.position)


def scaled_sizes(sizes: Sizes, longest: int) -> Sizes:
    """Pages of these (width, height) with another longest side.

    >>> scaled_sizes(np.array([[1000, 2000], [30, 20]]), 640).tolist()
    [[320, 640], [640, 427]]
    """
    scale = longest / sizes.max(axis=1, keepdims=True)
    scaled: NDArray[np.int64] = np.maximum(1, np.rint(sizes * scale)).astype(np.int64)
    return scaled
