"""A teacher that sees every page once: its maps are kept, and follow the page through the random stages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from ocr.cache.cache import Cache
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError
from ocr.models.detector import TextDetector
from ocr.models.head import Prediction
from ocr.pipeline.batch import Batch
from ocr.pipeline.cut import Cut
from ocr.pipeline.device import Normalize
from ocr.pipeline.page import FixedPart
from ocr.pipeline.placement import is_affine
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage, RandomStage
from ocr.training.teacher import Teacher

KEPT = Cut(page=True, dense=True)
"""Maps are mostly flat, and compressed to a fraction."""
LEVELS = 255
EDGE = 1e-3
"""Probabilities that bytes hold end here, and so do logits."""
FROM_CENTRES = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
"""OpenCV counts from the centre of the first pixel, matrices from its corner."""
SEE_BATCHES = "Let the teacher see every batch instead: distil.maps=batch"


class FoundText(FixedStage):
    """The pixels of a page become what the teacher finds there: probability, threshold, nothing; 255 is one."""

    def __init__(self, model: TextDetector, normalization: Normalize, fingerprint: str) -> None:
        self.model, self.normalization, self.fingerprint = model, normalization, fingerprint

    def fingerprint_parts(self) -> list[Any]:
        """The weights by their digest."""
        return [self.normalization, self.fingerprint]

    @torch.no_grad()
    def __call__(self, sample: Sample) -> Sample:
        device = next(self.model.parameters()).device
        page = torch.from_numpy(np.ascontiguousarray(sample.image)).to(device).permute(2, 0, 1)[None]
        with torch.autocast(device.type, enabled=False):
            found = self.model(self.normalization.on_device(page), with_threshold=True)
        maps = torch.cat([found.prob_map, found.thresh, torch.zeros_like(found.thresh)], dim=1)[0]
        image = (maps * LEVELS).round().to(torch.uint8).permute(1, 2, 0).contiguous().cpu().numpy()
        return replace(sample, image=image)

    def __repr__(self) -> str:
        return f"teacher {self.model.architecture['encoder']} ({self.fingerprint[:8]})"


class PageTeacher(Teacher):
    """Sees each page as it would to predict it, when it is first needed; a step then only moves its maps.

    `outside` is the threshold of pixels that are not on the page.
    """

    def __init__(
        self,
        model: TextDetector,
        letterbox: Letterbox | None = None,
        normalization: Normalize | None = None,
        outside: float = 0.3,
        cache_folder: str | os.PathLike[str] | None = None,
        cache_max_bytes: int | str = "auto",
        cache_max_total_bytes: int | str = "auto",
    ) -> None:
        super().__init__(model)
        self._letterbox, self._outside = letterbox or Letterbox(), outside
        self._kept_in: dict[str, Any] = {"folder": cache_folder, "max_bytes": cache_max_bytes}
        self._kept_in["max_total_bytes"] = cache_max_total_bytes
        self._found = FoundText(self.model, normalization or Normalize(), self.about["fingerprint"])
        self._pages: Cache | None = None
        self._numbers: dict[str, int] = {}

    def start(self, dataset: object) -> None:
        """Learn where the pages of the batches are; maps that an earlier run has kept are used again."""
        if not isinstance(dataset, PageDataset) or dataset.source.is_ready:
            raise ConfigError(
                f"distil.maps=page: there are no whole pages in this data. {SEE_BATCHES}",
                setting="distil.maps",
                value="page",
            )
        for stage in dataset.transform.random:
            if isinstance(stage, RandomStage) and stage.moves_geometry and not stage.follows_matrix:
                raise ConfigError(
                    f"distil.maps=page: maps cannot follow {stage!r}. {SEE_BATCHES}", setting="distil.maps", value=stage
                )
        decode = replace(dataset.decode, needed_side=self._letterbox.size)
        make = FixedPart(decode, (self._letterbox, self._found))
        # Not started, which would make a few of them again, and other threads or another device round differently.
        self._pages = Cache(dataset.source, make.parts, make, KEPT, **self._kept_in)
        self._numbers = {dataset.source.entry(index).path: index for index in range(len(dataset))}

    def start_epoch(self) -> None:
        if self._pages is not None:
            self._pages.look(())

    def find(self, index: int) -> Sample:
        """A page whose pixels are the teacher's maps: those that are kept, or made now."""
        if self._pages is None:
            raise ConfigError(
                "the teacher does not know its pages: call start(dataset) first", setting="PageTeacher.start"
            )
        return self._pages.sample(index).unpacked()

    def maps(self, batch: Batch) -> Prediction:
        """What it found, where the pixels of the batch are now."""
        images = batch["images"]
        self.model.to(images.device)
        moved = np.stack(list(self._moved(batch, *images.shape[-2:])))
        maps = torch.from_numpy(moved).to(images.device, non_blocking=True).float() / LEVELS
        prob, thresh = maps[:, None, :, :, 0], maps[:, None, :, :, 1]
        logits = torch.logit(prob, eps=EDGE)
        return Prediction(logits, thresh, torch.sigmoid(self.model.head.k * (prob - thresh)))

    def _moved(self, batch: Batch, height: int, width: int) -> Iterator[NDArray[np.uint8]]:
        for path, matrix in zip(batch["image_path"], batch["inverse_matrix"], strict=True):
            page = self.find(self._numbers[path])
            yield move_maps(page, np.asarray(matrix, dtype=np.float64), (width, height), self._outside)


def move_maps(page: Sample, inverse: NDArray[np.float64], size: tuple[int, int], outside: float) -> NDArray[np.uint8]:
    """Maps (H, W, 3) of a page, seen through the matrix that leads from `size` pixels back to the source page."""
    matrix = np.linalg.inv(FROM_CENTRES) @ np.linalg.inv(page.inverse_matrix) @ inverse @ FROM_CENTRES
    matrix /= matrix[2, 2]
    how: Any = {"flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, "borderValue": (0, round(outside * LEVELS), 0)}
    moved = (
        cv2.warpAffine(page.image, matrix[:2], size, **how)
        if is_affine(matrix)
        else cv2.warpPerspective(page.image, matrix, size, **how)
    )
    return np.asarray(moved, dtype=np.uint8)
