"""Distillation: a student learns the maps of a trained detector on the very pixels that it sees itself."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import nn

from ocr.models.detector import TextDetector
from ocr.models.distil_loss import DistilLoss
from ocr.models.head import Prediction
from ocr.pipeline.device import Normalize
from ocr.pipeline.fingerprint import digest


class Distillation:
    """A frozen teacher and the loss of a student beside it.

    Not a torch module: the teacher is no part of the student's checkpoint, optimizer, average or ddp.
    """

    def __init__(
        self,
        teacher: TextDetector,
        loss: DistilLoss | None = None,
        normalization: Normalize | None = None,
        students: Normalize | None = None,
    ) -> None:
        """`normalization` is that of the teacher's pages, `students` that of the batches."""
        self.teacher, self.loss = teacher.eval().requires_grad_(False), loss or DistilLoss()
        self._conversion = conversion(students or Normalize(), normalization or Normalize())
        self.about = {"encoder": teacher.architecture["encoder"], "fingerprint": fingerprint_weights(teacher)}
        """For the record of the training: which teacher it was."""

    def __call__(self, images: torch.Tensor, student: Prediction) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss on normalised images, and its parts."""
        loss: tuple[torch.Tensor, dict[str, torch.Tensor]] = self.loss(student, self.maps(images))
        return loss

    @torch.no_grad()
    def maps(self, images: torch.Tensor) -> Prediction:
        """What the teacher finds on images that are normalised for the student."""
        first = next(self.teacher.parameters())
        if (first.device, first.dtype) != (images.device, images.dtype):
            self.teacher.to(images.device, images.dtype)
        if self._conversion is not None:
            # Numbers, not tensors: a small tensor that is copied to the device waits for all queued work.
            channels = zip(images.unbind(1), *self._conversion, strict=True)
            images = torch.stack([channel * factor + offset for channel, factor, offset in channels], dim=1)
        prediction: Prediction = self.teacher(images, with_threshold=True)
        return prediction

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # The average of the student's weights starts as a copy of the whole module.
        return self


def conversion(given: Normalize, wanted: Normalize) -> tuple[list[float], list[float]] | None:
    """Factors and offsets per channel from one normalisation to another; None if they are the same."""
    if given == wanted:
        return None
    (from_offset, from_factor), (to_offset, to_factor) = given.offset_and_factor, wanted.offset_and_factor
    return (to_factor / from_factor).tolist(), ((from_offset - to_offset) * to_factor).tolist()


def fingerprint_weights(model: nn.Module) -> str:
    """Digest of all weights and their names."""
    state = model.state_dict()
    tensors = (state[name].detach().cpu().contiguous() for name in sorted(state))
    return digest(*sorted(state), *(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors))
