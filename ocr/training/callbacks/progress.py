"""The progress of an epoch on a terminal: the share of time that the model waits for data, and the time left."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import lightning
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ocr.training.callbacks.epoch_report import epoch_name
from ocr.training.module import OCRPLModule
from ocr.training.stopwatch import RunClock
from ocr.units import format_seconds


class WaitingBar(ProgressBar):
    """One line at the bottom of the terminal that goes away; nothing in a file or a pipe.

    `wait` is the share of the epoch so far that the model waited for data.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self.console = console or Console()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._clock = RunClock()
        self._began = 0.0
        self._is_enabled = True
        self._logged: list[tuple[logging.StreamHandler[Any], Any]] = []

    def disable(self) -> None:
        self._is_enabled = False

    def enable(self) -> None:
        self._is_enabled = True

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if self._is_enabled and trainer.is_global_zero and self.console.is_terminal and self._bar is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[told]}"),
            )
            self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
            self._bar.start()
            self._redirect_logs()

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        self._stop()

    def on_exception(self, trainer: lightning.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._clock = RunClock.of(trainer, pl_module)
        self._begin_epoch(trainer)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._begin_epoch(trainer)

    def _begin_epoch(self, trainer: lightning.Trainer) -> None:
        self._began = time.perf_counter()
        self._show(epoch_name(trainer.current_epoch, trainer.max_epochs), self.total_train_batches)

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: Any, outputs: Any, batch: Any, at: int) -> None:
        if self._bar is None or self._task is None:
            return
        seconds = max(1e-9, time.perf_counter() - self._began)
        told = []
        if isinstance(pl_module, OCRPLModule):
            if pl_module.finite.latest is not None:
                # Of the step before: Lightning's own value would make the host wait for this one.
                told.append(f"loss {pl_module.finite.latest:.3f}")
            told.append(f"wait {pl_module.stopwatch.seconds['data wait'] / seconds:.0%}")
        left = self._clock.left(trainer.global_step)
        told += [f"{format_seconds(left)} left"] if left is not None else []
        self._bar.update(self._task, completed=at + 1, told="  ".join(told))

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._show("validation", trainer.num_val_batches)

    def on_validation_batch_end(self, trainer: lightning.Trainer, *args: Any) -> None:
        self._advance()

    def on_test_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._show("scoring", trainer.num_test_batches)

    def on_test_batch_end(self, trainer: lightning.Trainer, *args: Any) -> None:
        self._advance()

    def _show(self, what: str, total: float | list[Any]) -> None:
        if self._bar is None:
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        count = sum(total) if isinstance(total, list) else total
        self._task = self._bar.add_task(what, total=count if count != float("inf") else None, told="")

    def _advance(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)

    def _stop(self) -> None:
        for handler, stream in self._logged:
            handler.setStream(stream)
        self._logged = []
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _redirect_logs(self) -> None:
        """Handlers that were made before the bar would write into its line."""
        originals = {sys.__stdout__, sys.__stderr__}
        for logger in (logging.getLogger(), logging.getLogger("lightning.pytorch")):
            for handler in logger.handlers:
                if type(handler) is logging.StreamHandler and handler.stream in originals:
                    self._logged.append((handler, handler.stream))
                    handler.setStream(sys.stdout if handler.stream is sys.__stdout__ else sys.stderr)
