"""Teachers: a frozen detector that says what it finds on the pixels of a batch."""

from __future__ import annotations

import torch
from torch import nn

from ocr.models.detector import TextDetector
from ocr.models.head import Prediction
from ocr.pipeline.batch import Batch
from ocr.pipeline.device import Normalize
from ocr.pipeline.fingerprint import digest


class Teacher:
    """Not a torch module: a teacher is not part of the student's checkpoint, optimizer, average or ddp."""

    def __init__(self, model: TextDetector) -> None:
        self.model = model.eval().requires_grad_(False)
        self.about = {"encoder": model.architecture["encoder"], "fingerprint": fingerprint_weights(model)}
        """For the record of the training: which teacher it was."""

    def start(self, dataset: object) -> None:
        """Training starts on these pages."""

    def maps(self, batch: Batch) -> Prediction:
        """What it finds on the pixels of a batch."""
        raise NotImplementedError


class BatchTeacher(Teacher):
    """Sees every batch, after all random stages, so a step takes as much longer as it takes to predict."""

    def __init__(
        self, model: TextDetector, normalization: Normalize | None = None, students: Normalize | None = None
    ) -> None:
        """`normalization` is for the teacher's pages, `students` of the batches."""
        super().__init__(model)
        self._conversion = conversion(students or Normalize(), normalization or Normalize())

    @torch.no_grad()
    def maps(self, batch: Batch) -> Prediction:
        """What it finds on images that are normalised for the student."""
        images: torch.Tensor = batch["images"]
        first = next(self.model.parameters())
        if (first.device, first.dtype) != (images.device, images.dtype):
            self.model.to(images.device, images.dtype)
        if self._conversion is not None:
            # Numbers, not tensors: a small tensor that is copied to the device waits for all queued work.
            channels = zip(images.unbind(1), *self._conversion, strict=True)
            images = torch.stack([channel * factor + offset for channel, factor, offset in channels], dim=1)
        prediction: Prediction = self.model(images, with_threshold=True)
        return prediction


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
