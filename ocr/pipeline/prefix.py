"""prefix: the fixed part of the geometry, from a page of any size to the model's square."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from ocr.checks import SIDE, Range, check_numbers, check_word
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

INTERPOLATIONS = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "cubic": cv2.INTER_CUBIC}
POSITIONS = ("center", "top_left", "top_right", "bottom_left", "bottom_right")


@dataclass(frozen=True, slots=True)
class Letterbox(FixedStage):
    """Scale the longest side to `size`, pad to a square. Fixed: same page in, same page out."""

    size: int = 640
    position: str = "center"
    fill: int = 0
    interpolation: str = "linear"

    def __post_init__(self) -> None:
        check_numbers(self, size=SIDE, fill=Range(0, 255, whole=True))
        check_word(self, "position", POSITIONS)
        check_word(self, "interpolation", INTERPOLATIONS)

    def __call__(self, sample: Sample) -> Sample:
        # The geometry follows the page's full size, so a page decoded smaller has the same polygons.
        page_width, page_height = sample.size
        scale = self.size / max(page_width, page_height)
        width, height = max(1, round(page_width * scale)), max(1, round(page_height * scale))
        left, top = self._corner(width, height)
        canvas = np.full((self.size, self.size, 3), self.fill, dtype=sample.image.dtype)
        window = canvas[top : top + height, left : left + width]
        if sample.image.shape == window.shape:
            window[:] = sample.image
        else:
            cv2.resize(sample.image, (width, height), dst=window, interpolation=self._flag(scale))
        return sample.moved(canvas, np.array([[scale, 0, left], [0, scale, top], [0, 0, 1]]))

    def _flag(self, scale: float) -> int:
        # Averaging is for shrinking; enlarging with it makes a page blocky.
        return INTERPOLATIONS["linear" if self.interpolation == "area" and scale > 1 else self.interpolation]

    def _corner(self, width: int, height: int) -> tuple[int, int]:
        spare_x, spare_y = self.size - width, self.size - height
        if self.position == "center":
            return spare_x // 2, spare_y // 2
        return spare_x * ("right" in self.position), spare_y * ("bottom" in self.position)
