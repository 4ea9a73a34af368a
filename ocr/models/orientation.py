"""orientation: how a page is turned, told by a small head on the encoder of the detector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from ocr.geometry.orientation import apply_orientation
from ocr.geometry.polygons import Polygons
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample

TURNS = (0, 90, 180, 270)
"""Degrees clockwise by which a page is turned."""
UPRIGHT = {0: 1, 90: 8, 180: 3, 270: 6}
"""The EXIF orientation that turns such a page upright."""
MIN_MARGIN = 0.5
"""Between the two likeliest turns, as probabilities; below it a page stays as it is."""
CELLS = 4


class OrientationHead(nn.Module):
    """Scores of the four turns from the two coarsest maps of an encoder, pooled on a grid."""

    def __init__(self, in_channels: Sequence[int], channels: int = 32) -> None:
        super().__init__()
        self.reduce = nn.ModuleList(nn.Conv2d(size, channels, 1) for size in in_channels[-2:])
        self.norm = nn.BatchNorm1d(2 * channels * CELLS * CELLS)
        self.turns = nn.Linear(2 * channels * CELLS * CELLS, len(TURNS))

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        pooled = [
            functional.adaptive_avg_pool2d(functional.relu(layer(level)), CELLS).flatten(1)
            for layer, level in zip(self.reduce, features[-2:], strict=True)
        ]
        scores: torch.Tensor = self.turns(functional.dropout(self.norm(torch.cat(pooled, dim=1)), 0.2, self.training))
        return scores


def small_page(image_hwc: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The page in a square of `side` pixels, as the head sees it."""
    height, width = image_hwc.shape[:2]
    sample = Sample(0, "", "", Polygons.pack([]), image=image_hwc, shape=(width, height))
    page: NDArray[np.uint8] = Letterbox(side, interpolation="area")(sample).unpacked().image
    return page


def turn_page(image_hwc: NDArray[np.uint8], degrees: int) -> NDArray[np.uint8]:
    """The page turned clockwise."""
    return apply_orientation(image_hwc, UPRIGHT[-degrees % 360])


def choose_turn(scores: NDArray[np.float64], min_margin: float = MIN_MARGIN) -> tuple[int, float]:
    """Degrees clockwise by which a page is turned, and the margin; 0 where the margin is too small.

    >>> choose_turn(np.array([0.0, 9.0, 0.0, 0.0]))[0], choose_turn(np.array([0.0, 0.3, 0.0, 0.0]))[0]
    (90, 0)
    """
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    second, first = np.sort(shares)[-2:]
    margin = float(first - second)
    return (TURNS[int(shares.argmax())] if margin >= min_margin else 0), margin


@torch.inference_mode()
def find_turn(
    encoder: nn.Module, head: OrientationHead, normalize: Normalize, image_hwc: NDArray[np.uint8], side: int
) -> tuple[int, float]:
    """By how many degrees clockwise a page is turned, and the margin of this answer."""
    pixels = normalize.on_host(small_page(image_hwc, side))
    scores = head(encoder(torch.from_numpy(pixels)[None]))[0]
    return choose_turn(scores.double().numpy())
