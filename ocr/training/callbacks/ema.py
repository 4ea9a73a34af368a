"""An average of the weights of the last steps, usable from the first validation on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ocr.errors import ConfigError


class WarmEMA(WeightAveraging):
    """Lightning's weight averaging with a decay that grows to `decay`: min(decay, (1 + n) / (10 + n)) at update n.

    With a fixed decay of 0.99 the random start still makes up 43 % of the average after 85 steps, and nothing is found.
    The average is kept where the model is, and its update never waits for the device.
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ConfigError(
                f"callbacks.ema.decay={decay} must be a number >= 0 and < 1", setting="callbacks.ema.decay", value=decay
            )
        super().__init__()
        self.decay = decay
        self._is_swapped = False
        """In validation the model has the average, and the average the weights of the model."""

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        # Lightning makes the average before the model is on its device.
        assert self._average_model is not None
        self._is_swapped = False
        self._average_model.to(pl_module.device)
        self._average_model.n_averaged = self._average_model.n_averaged.cpu()  # The host reads it in every step.

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, *_: Any) -> None:
        assert self._average_model is not None
        if trainer.global_step > self._latest_update_step:
            update_average(self._average_model, pl_module, self.decay)
            self._latest_update_step = trainer.global_step

    def on_validation_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        super().on_validation_epoch_start(trainer, pl_module)
        self._is_swapped = self._average_model is not None

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        super().on_validation_epoch_end(trainer, pl_module)
        self._is_swapped = False

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if self._is_swapped:  # Ctrl-C in validation: Lightning takes each for the other.
            average = checkpoint["current_model_state"]
            checkpoint["state_dict"], checkpoint["current_model_state"] = average, checkpoint["state_dict"]


@torch.no_grad()
def update_average(average: AveragedModel, current: nn.Module, decay: float) -> None:
    """Add one more step to the average of parameters and buffers; the first step replaces it."""
    updates = int(average.n_averaged)
    pairs = list(zip(_tensors(average.module), _tensors(current), strict=True))
    kept, latest = zip(*(pair for pair in pairs if pair[0].is_floating_point()), strict=True)
    torch._foreach_lerp_(kept, latest, 1 - warm_weight(updates, decay) if updates else 1.0)
    for kept_count, count in (pair for pair in pairs if not pair[0].is_floating_point()):
        kept_count.copy_(count)
    average.n_averaged += 1


def warm_weight(updates: int, decay: float) -> float:
    """The weight of the average against one more step, after so many updates."""
    return min(decay, (1 + updates) / (10 + updates))


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    return chain(module.parameters(), module.buffers())
