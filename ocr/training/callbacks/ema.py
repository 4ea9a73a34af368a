"""An average of the weights of the last steps, usable from the first validation on."""

from __future__ import annotations

from functools import partial

import torch
from lightning.pytorch.callbacks import WeightAveraging

from ocr.errors import ConfigError


class WarmEMA(WeightAveraging):
    """Lightning's weight averaging with a decay that grows to `decay`: min(decay, (1 + n) / (10 + n)) at update n.

    With a fixed decay of 0.99 the random start still makes up 43 % of the average after 85 steps, and nothing is found.
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ConfigError(f"callbacks.ema.decay={decay} must be a number >= 0 and < 1")
        super().__init__(avg_fn=partial(warm_average, decay=decay))


def warm_average(
    average: torch.Tensor, current: torch.Tensor, updates: torch.Tensor | int, decay: float
) -> torch.Tensor:
    """The average after one more step."""
    weight = min(decay, (1 + float(updates)) / (10 + float(updates)))
    return average * weight + current * (1 - weight)
