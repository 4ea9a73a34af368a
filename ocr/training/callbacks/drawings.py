"""Predictions of a few validation pages, drawn every epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from numpy.typing import NDArray

from ocr.checks import check_integer
from ocr.evaluation.drawing import draw_page, write_picture
from ocr.geometry.polygons import Polygons


class DrawPredictions(lightning.Callback):
    """Write `epoch_<n>.jpg`, from 1: annotation in green, detections in red, next to the probability map."""

    def __init__(self, folder: str | Path, pages: int = 4, every_epochs: int = 1) -> None:
        check_integer("callbacks.drawings.pages", pages, minimum=1)
        check_integer("callbacks.drawings.every_epochs", every_epochs, minimum=1)
        self.folder = Path(folder)
        self.pages, self.every_epochs = pages, every_epochs

    def on_validation_batch_end(
        self, trainer: lightning.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        due = (trainer.current_epoch + 1) % self.every_epochs == 0
        if batch_idx or not due or not trainer.is_global_zero or trainer.sanity_checking or batch is None:
            return
        images = batch["images"][: self.pages]
        with torch.no_grad():
            prob_maps = pl_module.model(images, with_threshold=False).prob_map.cpu().numpy()[:, 0]
        pixels = to_pixels(images, pl_module)
        rows = []
        for page, prob_map in enumerate(prob_maps):
            truth = Polygons.pack(batch["polygons"][page], batch["ignore"][page])
            drawn = draw_page(pixels[page], pl_module.boxes(prob_map), truth)
            rows.append(
                np.concatenate([drawn, np.repeat((prob_map * 255).astype(np.uint8)[..., None], 3, axis=2)], axis=1)
            )
        write_picture(self.folder / f"epoch_{trainer.current_epoch + 1:03d}.jpg", np.concatenate(rows))


def to_pixels(images: torch.Tensor, pl_module: Any) -> NDArray[np.uint8]:
    """Normalised images (B, 3, H, W) back as (B, H, W, 3) uint8."""
    offset, factor = (torch.from_numpy(part).view(3, 1, 1) for part in pl_module.normalization.offset_and_factor)
    pixels = images.float().cpu() / factor + offset
    return pixels.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
