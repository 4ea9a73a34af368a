"""views: a page as the model sees it, in one or several sizes, and the maps of several sizes as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.checks import POSITIVE
from ocr.deploy.runtimes import MIN_SIDE
from ocr.errors import ConfigError
from ocr.models.settings import DetectorSettings
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample, rounded_up

Views = tuple[Sample, ...]
"""One page, once per scale; boxes are found on the grid of the first."""


@dataclass(frozen=True, slots=True)
class PageViews:
    """Makes the views of a page: the letterbox of the training, at each of `scales` times its size."""

    letterbox: Letterbox
    margin: tuple[int, ...]
    """Pixel around a page: the letterbox's fill in a batch of shapes, else what the model pads with itself."""
    scales: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.scales or any(scale not in POSITIVE for scale in self.scales):
            raise ConfigError(
                f"scales={list(self.scales)} must be numbers > 0, such as [1] or [1, 0.75, 1.5]",
                setting="scales",
                value=list(self.scales),
            )

    @classmethod
    def of_settings(cls, settings: DetectorSettings, scales: Sequence[float]) -> PageViews:
        if not isinstance(scales, Iterable):
            raise ConfigError(
                f"scales={scales} must be a list of numbers > 0, such as [1] or [1, 0.75, 1.5]",
                setting="scales",
                value=scales,
            )
        letterbox, normalize = settings.build("letterbox", Letterbox), settings.build("normalization", Normalize)
        mean = np.round(np.array(normalize.mean) * normalize.max_pixel_value)
        fill = np.full(3, letterbox.fill) if letterbox.shape == "page" else mean
        return cls(letterbox, tuple(fill.clip(0, 255).astype(int).tolist()), tuple(scales))

    def sides(self, side: int) -> list[int]:
        """The longest side of the page in each view."""
        return [max(1, round(side * scale)) for scale in self.scales]

    def of_page(self, page: Sample) -> Views:
        """A decoded page as the model was trained to see it."""
        sides = self.sides(self.letterbox.size)
        return tuple(self.filled_up(replace(self.letterbox, size=size)(page)) for size in sides)

    def enlarged(self, page: Sample, longest: int, number: int) -> Sample:
        """View `number` of a page whose longest side becomes `longest`, not yet filled up."""
        letterbox = replace(self.letterbox, size=self.sides(longest)[number], shape="page", position="top_left")
        return letterbox(page)

    def filled_up(self, sample: Sample) -> Sample:
        """A view, filled up on the right and at the bottom to a size that every runtime takes."""
        height, width = (max(side, MIN_SIDE) for side in rounded_up(sample.height, sample.width))
        if (height, width) == (sample.height, sample.width):
            return sample
        canvas = np.empty((height, width, 3), dtype=np.uint8)
        canvas[: sample.height, : sample.width] = sample.image
        canvas[sample.height :] = self.margin
        canvas[: sample.height, sample.width :] = self.margin
        return replace(sample, image=canvas)


def on_first_grid(maps: Sequence[NDArray[np.float32]], views: Views) -> NDArray[np.float32]:
    """The mean of one map (H, W) per view, on the pixels of the first."""
    if len(maps) == 1:
        return maps[0]
    height, width = maps[0].shape
    total = maps[0].copy()
    for found, view in zip(maps[1:], views[1:], strict=True):
        matrix = np.linalg.inv(view.inverse_matrix) @ views[0].inverse_matrix
        # OpenCV counts from the centre of the first pixel, matrices from its corner.
        shift = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
        matrix = np.linalg.inv(shift) @ matrix @ shift
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        total += cv2.warpAffine(found, matrix[:2], (width, height), flags=flags)
    return total / np.float32(len(maps))
