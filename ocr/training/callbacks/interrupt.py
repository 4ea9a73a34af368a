"""Ctrl-C leaves a checkpoint to resume from."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import lightning
from rich.console import Console
from rich.text import Text


class SaveOnInterrupt(lightning.Callback):
    """Write `last.ckpt` when the run is interrupted; not when it fails, because the weights might be the cause."""

    def __init__(self, folder: str | Path, console: Console | None = None) -> None:
        self.path = Path(folder) / "last.ckpt"
        self.console = console or Console()

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, KeyboardInterrupt) and trainer.global_step:
            trainer.save_checkpoint(self.path)
            if trainer.is_global_zero:
                command = resume_command(self.path)
                self.console.print(Text(f"saved after step {trainer.global_step}. Continue with:"))
                self.console.print(Text(command), soft_wrap=True)


def resume_command(path: Path) -> str:
    """What is typed in the working directory to continue from a checkpoint.

    >>> resume_command(Path("a b/last.ckpt"))
    "glyphfeed train 'resume=a b/last.ckpt'"
    """
    below = Path(os.path.relpath(path))
    return shlex.join(["glyphfeed", "train", f"resume={path if below.parts[0] == '..' else below}"])
