"""A whole training: its epochs and validations, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from ocr.advisor.model.queueing import Prediction


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """How many epochs and validations a training has, and what a validation takes."""

    epochs: int
    validations: int = 0
    validation_seconds: float = 0.0

    def seconds(self, first: Prediction, later: Prediction) -> float:
        """All epochs, the first of which may also fill a cache or compile, and all validations."""
        training = first.epoch_seconds + (self.epochs - 1) * later.epoch_seconds
        return training + self.validations * self.validation_seconds
