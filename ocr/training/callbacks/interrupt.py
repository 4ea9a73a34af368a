"""Ctrl-C leaves a checkpoint to resume from."""

from __future__ import annotations

from pathlib import Path

import lightning


class SaveOnInterrupt(lightning.Callback):
    """Write `last.ckpt` when the run is interrupted; not when it fails, because the weights may be the cause."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "last.ckpt"

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, KeyboardInterrupt) and trainer.global_step:
            trainer.save_checkpoint(self.path)
            print(f"\ninterrupted; continue with: resume={self.path}")
