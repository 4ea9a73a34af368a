"""Distillation: a student learns the maps of a trained detector in addition to the labels."""

from __future__ import annotations

from typing import Any, Self

import torch

from ocr.models.distil_loss import DistilLoss
from ocr.models.head import Prediction
from ocr.pipeline.batch import Batch
from ocr.training.teacher import Teacher


class Distillation:
    """A frozen teacher, and the loss of a student compared with it."""

    def __init__(self, teacher: Teacher, loss: DistilLoss | None = None) -> None:
        self.teacher, self.loss = teacher, loss or DistilLoss()

    def __call__(self, batch: Batch, student: Prediction) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss on a batch of normalised images, and its parts."""
        loss: tuple[torch.Tensor, dict[str, torch.Tensor]] = self.loss(student, self.teacher.maps(batch))
        return loss

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # The average of the student's weights starts as a copy of the whole module.
        return self
