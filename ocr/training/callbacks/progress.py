"""The progress bar, with the share of time that the model waits for data."""

from __future__ import annotations

import time
from typing import Any

import lightning
from lightning.pytorch.callbacks import RichProgressBar

from ocr.training.module import OCRPLModule


class WaitingBar(RichProgressBar):
    """Lightning's rich bar, it/s included, and `wait`: the share of the epoch so far that the model waited for data."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._epoch_started = time.perf_counter()

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._epoch_started = time.perf_counter()
        super().on_train_epoch_start(trainer, pl_module)

    def get_metrics(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> dict[str, Any]:
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        if isinstance(pl_module, OCRPLModule) and trainer.training:
            waited = pl_module.stopwatch.seconds["data wait"] / max(1e-9, time.perf_counter() - self._epoch_started)
            if pl_module.finite.latest is not None:
                # Of the step before: Lightning's own value would make the host wait for this one.
                shown["train/loss"] = f"{pl_module.finite.latest:.3f}"
            shown["wait"] = f"{waited:.0%}"
        return shown
