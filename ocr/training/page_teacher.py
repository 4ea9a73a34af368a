"""A teacher that sees every page once: its maps are kept, and follow the page through the random stages."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from ocr.cache.cache import Cache
from ocr.errors import ConfigError
from ocr.models.detector import TextDetector
from ocr.models.head import Prediction
from ocr.pipeline.batch import Batch
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.path import PagePath, path_of
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage, RandomStage
from ocr.pipeline.warp import is_affine
from ocr.training.teacher import Teacher

LEVELS = 255
EDGE = 1e-3
"""Probabilities that bytes hold end here, and so do logits."""
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
    ) -> None:
        super().__init__(model)
        self._letterbox, self._outside = letterbox or Letterbox(), outside
        self._cache_folder, self._cache_max_bytes = cache_folder, cache_max_bytes
        self._found = FoundText(self.model, normalization or Normalize(), self.about["fingerprint"])
        self._path: PagePath | None = None
        """The pages of the batches, but as the teacher sees them."""
        self._side: int | None = None
        """The longest side of the student's pages at the cut; None: the source page's."""
        self._indices: defaultdict[str, list[int]] = defaultdict(list)
        """Of the pages with this name: two joined folders can both have it."""

    def start(self, dataset: object) -> None:
        """Learn where the pages of the batches are; maps that an earlier run has kept are reused."""
        path = path_of(dataset)
        if path is None or path.source.is_ready:
            raise ConfigError(
                f"distil.maps=page needs whole pages, and this data has only ready samples. {SEE_BATCHES}",
                setting="distil.maps",
                value="page",
            )
        for stage in path.random:
            if isinstance(stage, RandomStage) and stage.moves_geometry and not stage.follows_matrix:
                raise ConfigError(
                    f"distil.maps=page, but maps cannot follow {stage!r}. {SEE_BATCHES}",
                    setting="distil.maps",
                    value=stage,
                )
        decode, fixed = replace(path.decode, needed_side=self._letterbox.size), (self._letterbox, self._found)
        # Other threads or another device round differently: maps that are made twice differ, and none is rechecked.
        kept = Cache((decode, *fixed), self._cache_folder, self._cache_max_bytes, path.source.location, recheck=0)
        self._path = replace(path, decode=decode, fixed=fixed, random=(), cache=kept)
        self._side = next((stage.size for stage in reversed(path.fixed) if isinstance(stage, Letterbox)), None)
        self._indices.clear()
        for index, name in enumerate(path.source.names):
            self._indices[name].append(index)

    def find(self, index: int) -> Sample:
        """A page whose pixels are the teacher's maps: those that are kept, or made now."""
        return self._pages.at_cut(index).unpacked()

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
        for name, path, matrix in zip(
            batch["image_filename"], batch["image_path"], batch["inverse_matrix"], strict=True
        ):
            page = self.find(self._index(name, path))
            scale = self._letterbox.size / (self._side or max(page.shape))
            yield move_maps(page, np.asarray(matrix, dtype=np.float64), (width, height), self._outside, scale)

    def _index(self, name: str, path: str) -> int:
        source, indices = self._pages.source, self._indices[name]
        return next(index for index in indices if len(indices) == 1 or source.state(index).path == path)

    @property
    def _pages(self) -> PagePath:
        if self._path is None:
            raise ConfigError(
                "the teacher does not know its pages. Call start(dataset) first", setting="PageTeacher.start"
            )
        return self._path


def move_maps(
    page: Sample, inverse: NDArray[np.float64], size: tuple[int, int], outside: float, scale: float = 1.0
) -> NDArray[np.uint8]:
    """Maps (H, W, 3) of a page, seen through the matrix that leads from `size` pixels back to the source page.

    `scale` is how many pixels of the maps one of the student's page at the cut is: the two were scaled from their
    corners, and everything after the cut counts from centres (see `Sample.inverse_matrix`).
    """
    between_centres = np.array([[1, 0, (scale - 1) / 2], [0, 1, (scale - 1) / 2], [0, 0, 1]])
    matrix = between_centres @ np.linalg.inv(page.inverse_matrix) @ inverse
    matrix /= matrix[2, 2]
    how: Any = {"flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, "borderValue": (0, round(outside * LEVELS), 0)}
    moved = (
        cv2.warpAffine(page.image, matrix[:2], size, **how)
        if is_affine(matrix)
        else cv2.warpPerspective(page.image, matrix, size, **how)
    )
    return np.asarray(moved, dtype=np.uint8)
