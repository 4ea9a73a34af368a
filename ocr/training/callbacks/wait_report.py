"""After an epoch in which the model waited for data: one line about why, and the command that finds out more."""

from __future__ import annotations

import shlex
import time
from typing import Any

import lightning
from hydra.core.hydra_config import HydraConfig
from rich.console import Console
from rich.text import Text

from ocr.geometry.kernels.warm_up import warm_up

TOO_MUCH = 0.1
"""Share of an epoch."""


class WaitReport(lightning.Callback):
    """Says once per cause that the model waited for data for over a tenth of an epoch."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._started = self._first_wait = 0.0
        self._reported: set[str] = set()

    def setup(self, trainer: lightning.Trainer, pl_module: Any, stage: str) -> None:
        # Before the first epoch: compiling must not count as waiting for data.
        warm_up(show=trainer.is_global_zero)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        # A run that resumes within an epoch does not start it.
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._started, self._first_wait = time.perf_counter(), 0.0

    def on_train_batch_start(self, trainer: lightning.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            self._first_wait = pl_module.stopwatch.seconds["data wait"]

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        seconds, waited = time.perf_counter() - self._started, pl_module.stopwatch.seconds["data wait"]
        if waited < TOO_MUCH * seconds or not trainer.is_global_zero:
            return
        cause, why = self._cause(trainer, waited, seconds)
        if cause not in self._reported:
            self._reported.add(cause)
            line = f"the model waited for data for {waited / seconds:.0%} of the epoch{why}"
            self.console.print(Text(line), soft_wrap=True)

    def _cause(self, trainer: lightning.Trainer, waited: float, seconds: float) -> tuple[str, str]:
        dataset = getattr(getattr(trainer, "datamodule", None), "datasets", {}).get("train")
        ledger = getattr(dataset, "ledger", None)
        totals = ledger.totals() if ledger is not None else {"cache_misses": 0, "seen": 0}
        if totals["cache_misses"] > TOO_MUCH * totals["seen"]:
            return "filling", ", while the cache was filled: later epochs read it"
        if waited - self._first_wait < TOO_MUCH * seconds:
            return "starting", f", {self._first_wait:.1f} s of it for the first batch: the loader was starting"
        return "loader", f". What would help: {_advise()}"


def _advise() -> str:
    """The command that looks into this run."""
    if not HydraConfig.initialized():
        return "glyphfeed advise, with the settings of this run"
    typed = [word for word in HydraConfig.get().overrides.task if not word.startswith("resume=")]
    return shlex.join(["glyphfeed", "advise", *typed])
