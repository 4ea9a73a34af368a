"""What an epoch took and reached: one line, or a table where something was validated."""

from __future__ import annotations

import time
from typing import Any

import lightning
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ocr.system import memory_bytes
from ocr.training.stopwatch import PARTS, RunClock
from ocr.units import format_seconds

LOSS, HMEAN, TIGHT = "loss", "H-mean", "H-mean at IoU 0.7"
SCORES = {HMEAN: "val/hmean", TIGHT: "val/hmean_70"}


class EpochReport(lightning.Callback):
    """Measures the waits between steps, prints the epoch and logs its figures.

    `history` keeps one row per epoch, with scores if it was validated.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.history: list[dict[str, float]] = []
        self._samples = 0
        self._started = 0.0
        self._clock = RunClock()
        self._validated = False

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._clock = RunClock.of(trainer, pl_module)
        # A run that resumes within an epoch does not start it.
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._validated = False
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

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        seconds = time.perf_counter() - self._started
        metrics = trainer.callback_metrics
        row = {part: pl_module.stopwatch.seconds[part] for part in PARTS}
        row |= {"epoch seconds": seconds, "samples/s": self._samples * trainer.world_size / seconds}
        # Scores of an earlier validation are still among the metrics.
        shown = {LOSS: "train/loss"} | (SCORES if self._validated else {})
        row |= {name: float(metrics[key]) for name, key in shown.items() if key in metrics}
        self.history.append(row)
        for part in PARTS:
            pl_module.log(f"seconds/{part.replace(' ', '_')}", row[part], rank_zero_only=True)
        pl_module.log("samples_per_second", row["samples/s"], rank_zero_only=True)
        pl_module.log("memory_gb", memory_bytes() / 1e9, rank_zero_only=True)
        if trainer.is_global_zero:
            left = self._clock.left(trainer.global_step)
            name = epoch_name(trainer.current_epoch, trainer.max_epochs)
            rest = "" if not left else f"{format_seconds(left)} left"
            self.console.print(self._table(name, row, rest) if self._validated else self._line(name, row, rest))
            if pl_module.left_out and self._validated:
                self.console.print(f"[yellow]max_candidates removed {pl_module.left_out} boxes in validation")

    def _line(self, name: str, row: dict[str, float], rest: str) -> Text:
        seconds = row["epoch seconds"]
        parts = [name, f"loss {row[LOSS]:.3g}" if LOSS in row else "", format_seconds(seconds)]
        parts += [f"{row['samples/s']:.3g} samples/s", f"data wait {row['data wait'] / seconds:.0%}", rest]
        return Text("  ".join(filter(None, parts)))

    def _table(self, name: str, row: dict[str, float], rest: str) -> Table:
        # No lines between the columns, so that all of them fit a terminal of 80 characters; one more would not.
        title = ", ".join(filter(None, (name, rest)))
        table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
        seconds = row["epoch seconds"]
        shown = {name: value for name, value in row.items() if name != TIGHT}
        for name in shown:
            table.add_column(name.removesuffix(" seconds"), justify="right", no_wrap=True)
        timed = {"epoch seconds", *PARTS}
        table.add_row(*(f"{value:.1f} s" if name in timed else f"{value:.3g}" for name, value in shown.items()))
        table.add_row(*(f"{value / seconds:.0%}" if name in PARTS else "" for name, value in shown.items()))
        if TIGHT in row:
            table.caption, table.caption_justify = f"{TIGHT}: {row[TIGHT]:.3g}", "right"
        return table


def epoch_name(epoch: int, epochs: int | None) -> str:
    """As people count: from 1.

    >>> epoch_name(0, 10), epoch_name(4, -1)
    ('epoch 1/10', 'epoch 5')
    """
    return f"epoch {epoch + 1}/{epochs}" if epochs and epochs > 0 else f"epoch {epoch + 1}"
