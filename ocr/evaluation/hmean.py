"""H-mean at IoU 0.5 by the ICDAR-2015 protocol, as a metric that is exact on several devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from ocr.errors import ConfigError
from ocr.geometry.kernels.overlap import Rings, Shapes, read_rings, ring_areas, shared_areas, touching_pairs
from ocr.geometry.polygons import Polygons


class HmeanIoU(Metric):
    """Share of words found, share of detections right, and their harmonic mean, over all pages together.

    >>> metric = HmeanIoU()
    >>> metric.update([[0, 0, 8, 0, 8, 2, 0, 2]], [[0, 0, 8, 0, 8, 2, 0, 2], [0, 5, 8, 5, 8, 7, 0, 7]])
    >>> scores = metric.compute()
    >>> scores["precision"].item(), scores["recall"].item()
    (1.0, 0.5)
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True
    matched: Tensor
    detections: Tensor
    words: Tensor

    def __init__(self, iou_threshold: float = 0.5, ignore_threshold: float = 0.5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        for name, value in (("iou_threshold", iou_threshold), ("ignore_threshold", ignore_threshold)):
            if not 0 <= value < 1:
                raise ConfigError(f"{name}={value} must be a number >= 0 and < 1")
        self.iou_threshold = iou_threshold
        self.ignore_threshold = ignore_threshold
        for name in ("matched", "detections", "words"):
            self.add_state(name, torch.tensor(0, dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self,
        det_polygons: Shapes,
        gt_polygons: Shapes,
        gt_ignore: Sequence[bool] | NDArray[np.bool_] | None = None,
    ) -> None:
        """Add one page: polygons in any form that `read_rings` accepts, and one flag per word, true to ignore it.

        Without `gt_ignore` the flags of packed polygons count, or no word is ignored. Fractions of pixels count too;
        only the protocol's text files have none.
        """
        if gt_ignore is None and isinstance(gt_polygons, Polygons):
            gt_ignore = gt_polygons.ignore
        dets = read_rings(det_polygons, "det_polygons").in_float64()
        gts = read_rings(gt_polygons, "gt_polygons").in_float64()
        ignore = np.zeros(len(gts), dtype=np.bool_) if gt_ignore is None else np.asarray(gt_ignore, dtype=np.bool_)
        if ignore.shape != (len(gts),):
            raise ValueError(f"gt_ignore has shape {ignore.shape} for {len(gts)} gt_polygons: give one flag per word")
        matched, detections = count_matches(dets, gts, ignore, self.iou_threshold, self.ignore_threshold)
        self.matched += matched
        self.detections += detections
        self.words += int((~ignore).sum())

    def compute(self) -> dict[str, Tensor]:
        """Scores `precision`, `recall` and `hmean`.

        If there is no word to find, recall is 1, and precision is 1 if nothing was detected either, else 0: the
        protocol's rule for a page. If there are words and nothing was detected, all three are 0.
        """
        matched, detections, words = int(self.matched), int(self.detections), int(self.words)
        recall = matched / words if words else 1.0
        precision = matched / detections if detections else float(words == 0)
        hmean = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        scores = {"precision": precision, "recall": recall, "hmean": hmean}
        return {key: torch.tensor(value, dtype=torch.float32, device=self.device) for key, value in scores.items()}


def count_matches(
    dets: Rings, gts: Rings, ignore: NDArray[np.bool_], iou_threshold: float, ignore_threshold: float
) -> tuple[int, int]:
    """Matched pairs, and detections that count.

    A detection with more than `ignore_threshold` of its area in one ignored word does not count. Then each word in
    turn takes the first free detection whose IoU with it is above `iou_threshold`. A self-crossing outline counts by
    the even-odd rule; a polygon without area matches nothing, and counts.
    """
    pairs = touching_pairs(gts.bounds, dets.bounds)
    gt, det = pairs.T
    no_holes = np.zeros(len(gts) + 1, dtype=np.int64)
    shared = shared_areas(gts.vertices, gts.starts, dets.vertices, dets.starts, pairs, no_holes[:0], no_holes)
    gt_areas, det_areas = ring_areas(gts.vertices, gts.starts)[gt], ring_areas(dets.vertices, dets.starts)[det]
    dropped = np.zeros(len(dets), dtype=np.bool_)
    dropped[det[ignore[gt] & (shared > ignore_threshold * det_areas)]] = True
    union = gt_areas + det_areas - shared
    iou = np.divide(shared, union, out=np.zeros(len(pairs)), where=union > 0)
    free_gt, free_det = ~ignore, ~dropped
    matched = 0
    for index in np.flatnonzero(iou > iou_threshold).tolist():
        if free_gt[gt[index]] and free_det[det[index]]:
            free_gt[gt[index]] = free_det[det[index]] = False
            matched += 1
    return matched, int((~dropped).sum())
