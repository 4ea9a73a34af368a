"""A loss that is not finite ends the run, and no step waits for the device to find out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ocr.errors import DataError
from ocr.pipeline.device import HostCopy


@dataclass(frozen=True, slots=True, eq=False)
class WatchedLoss:
    """A loss on its way to the host, and the step that it belongs to."""

    copy: HostCopy
    step: int
    epoch: int
    files: list[str]


class FiniteCheck:
    """Reads the loss of each step during the next one: the device has long computed it by then."""

    def __init__(self) -> None:
        self.latest: float | None = None
        """The last loss that was read."""
        self._pending: WatchedLoss | None = None

    def watch(self, loss: torch.Tensor, step: int, epoch: int, files: list[str]) -> None:
        """Remember the loss of this step; raise a DataError if the previous step's is not finite."""
        watched = WatchedLoss(HostCopy(loss), step, epoch, files)
        self.finish()
        self._pending = watched

    def finish(self) -> None:
        """Check the last step too: before weights are validated or saved."""
        if self._pending is None:
            return
        watched, self._pending = self._pending, None
        self.latest = float(watched.copy.read())
        if not math.isfinite(self.latest):
            raise DataError(
                f"the loss is {self.latest} at step {watched.step} (epoch {watched.epoch + 1}) on "
                f"{', '.join(watched.files)}. Look at these pages with `glyphfeed doctor`, lower optimizer.lr, or set "
                "trainer.precision=32-true",
                value=f"{self.latest} at step {watched.step}, epoch {watched.epoch + 1}",
                path=", ".join(watched.files),
            )
