"""head: one map at stride 4 becomes the probability and threshold maps of the page, and their binarisation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from ocr.models.layers import ConvNormReLU

STRIDE = 4
# Text covers a few percent of a page: from 0.5, the first hundred steps would only learn that.
FIRST_PROBABILITY = 0.01
# The middle of what the threshold band holds away from the outline (0.3) and on its way to it.
FIRST_THRESHOLD = 0.4


class Prediction(NamedTuple):
    """Maps (B, U, H, W) of the whole page, one per unit; `thresh` and `binary` only if requested."""

    prob_logits: torch.Tensor
    thresh: torch.Tensor | None = None
    binary: torch.Tensor | None = None

    def crop(self, height: int, width: int) -> Prediction:
        """The top left corner of every map."""
        corner = (..., slice(height), slice(width))
        extras = (part if part is None else part[corner] for part in (self.thresh, self.binary))
        return Prediction(self.prob_logits[corner], *extras)

    def of_unit(self, number: int) -> Prediction:
        """The maps of one unit."""
        own = slice(number, number + 1)
        extras = (part if part is None else part[:, own] for part in (self.thresh, self.binary))
        return Prediction(self.prob_logits[:, own], *extras)

    @property
    def prob_map(self) -> torch.Tensor:
        """Probability of text, float32: what boxes are made from."""
        return self.prob_logits.float().sigmoid()


class DBHead(nn.Module):
    """The two branches of DBNet, each with one map per unit; the threshold branch runs only in training."""

    def __init__(self, in_channels: int, channels: int, k: float = 50.0, maps: int = 1) -> None:
        super().__init__()
        self.k = k
        self.prob = _branch(in_channels, channels, FIRST_PROBABILITY, maps)
        self.thresh = _branch(in_channels, channels, FIRST_THRESHOLD, maps)

    def forward(self, features: torch.Tensor, with_threshold: bool) -> Prediction:
        prob_logits = self.prob(features)
        if not with_threshold:
            return Prediction(prob_logits)
        thresh_logits = self.thresh(features)
        return Prediction(prob_logits, *binarize(prob_logits, thresh_logits, self.k))


def binarize(prob_logits: torch.Tensor, thresh_logits: torch.Tensor, k: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The threshold map, and sigmoid(k (probability - threshold)), in float32 whatever the rest runs in.

    With k = 50 the rounding of a bfloat16 probability alone (1/256 near 0.5) would move the result by 0.05.
    """
    with torch.autocast(prob_logits.device.type, enabled=False):
        thresh = thresh_logits.float().sigmoid()
        return thresh, torch.sigmoid(k * (prob_logits.float().sigmoid() - thresh))


def with_units(
    weights: Mapping[str, torch.Tensor], stored: Sequence[str], wanted: Sequence[str], prefix: str = "head."
) -> dict[str, torch.Tensor]:
    """Weights of a head with other units: each map starts as the stored map of its unit, or as the first one."""
    if tuple(stored) == tuple(wanted) or max(len(stored), len(wanted)) < 2:
        return dict(weights)
    sources = [stored.index(unit) if unit in stored else 0 for unit in wanted or ("",)]
    size = STRIDE * STRIDE

    def picked(value: torch.Tensor) -> torch.Tensor:
        return torch.cat([value[at * size : (at + 1) * size] for at in sources])

    last = tuple(f"{prefix}{branch}.1." for branch in ("prob", "thresh"))
    return {name: picked(value) if name.startswith(last) else value for name, value in weights.items()}


def _branch(in_channels: int, channels: int, first_value: float, maps: int) -> nn.Sequential:
    # One step from stride 4 to full size. The published two transposed convolutions, with a norm between them at
    # stride 2, make a whole training step of the lite preset a third longer on a CPU, and its maps no better.
    last = nn.Conv2d(channels, maps * STRIDE * STRIDE, 1)
    nn.init.normal_(last.weight, std=0.5 / math.sqrt(channels))
    nn.init.constant_(last.get_parameter("bias"), math.log(first_value / (1 - first_value)))
    return nn.Sequential(ConvNormReLU(in_channels, channels), last, nn.PixelShuffle(STRIDE))
