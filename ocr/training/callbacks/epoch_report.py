"""One table at the end of each epoch: time per part, pages per second, scores."""

from __future__ import annotations

import time
from typing import Any

import lightning
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ocr.system import memory_bytes
from ocr.training.stopwatch import PARTS

TIGHT = "H-mean at IoU 0.7"
SCORES = {"loss": "train/loss", "H-mean": "val/hmean", TIGHT: "val/hmean_70"}


class EpochReport(lightning.Callback):
    """Measures the waits between steps, prints the table of the epoch and logs its figures.

    `history` keeps one row per epoch.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.history: list[dict[str, float]] = []
        self._samples = 0
        self._started = 0.0

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        pl_module.stopwatch.reset()
        self._samples, self._started = 0, time.perf_counter()
        pl_module.stopwatch.start("data wait")

    def on_train_batch_start(self, trainer: lightning.Trainer, pl_module: Any, batch: Any, _: int) -> None:
        pl_module.stopwatch.stop("data wait")
        self._samples += len(batch["images"]) if batch is not None else 0

    def on_before_backward(self, trainer: lightning.Trainer, pl_module: Any, loss: Any) -> None:
        pl_module.stopwatch.start("backward")

    def on_after_backward(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        pl_module.stopwatch.stop("backward")

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        pl_module.stopwatch.start("data wait")

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        pl_module.stopwatch.start("data wait")

    def on_validation_batch_start(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        pl_module.stopwatch.stop("data wait")

    def on_validation_batch_end(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        pl_module.stopwatch.start("data wait")

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        seconds = time.perf_counter() - self._started
        metrics = trainer.callback_metrics
        row = {part: pl_module.stopwatch.seconds[part] for part in PARTS}
        row |= {"epoch seconds": seconds, "samples/s": self._samples * trainer.world_size / seconds}
        row |= {name: float(metrics[key]) for name, key in SCORES.items() if key in metrics}
        self.history.append(row)
        for part in PARTS:
            pl_module.log(f"seconds/{part.replace(' ', '_')}", row[part], rank_zero_only=True)
        pl_module.log("samples_per_second", row["samples/s"], rank_zero_only=True)
        pl_module.log("memory_gb", memory_bytes() / 1e9, rank_zero_only=True)
        if trainer.is_global_zero:
            self.console.print(self._table(trainer.current_epoch, row, seconds))
            if pl_module.left_out:
                self.console.print(f"[yellow]max_candidates removed {pl_module.left_out} boxes in validation")

    def _table(self, epoch: int, row: dict[str, float], seconds: float) -> Table:
        # No lines between the columns, so that all of them fit a terminal of 80 characters; one more would not.
        table = Table(title=f"Epoch {epoch}", title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
        shown = {name: value for name, value in row.items() if name != TIGHT}
        for name in shown:
            table.add_column(name.removesuffix(" seconds"), justify="right", no_wrap=True)
        timed = {"epoch seconds", *PARTS}
        table.add_row(*(f"{value:.1f} s" if name in timed else f"{value:.3g}" for name, value in shown.items()))
        table.add_row(*(f"{value / seconds:.0%}" if name in PARTS else "" for name, value in shown.items()))
        if TIGHT in row:
            table.caption, table.caption_justify = f"{TIGHT}: {row[TIGHT]:.3g}", "right"
        return table
