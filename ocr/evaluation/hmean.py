"""H-mean at IoU 0.5, and at 0.7, by the ICDAR-2015 protocol, as a metric that is exact on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from ocr.errors import ConfigError
from ocr.geometry.kernels.overlap import Rings, Shapes, read_rings, ring_areas, shared_areas, touching_pairs
from ocr.geometry.polygons import Polygons

TIGHT_IOU = 0.7
"""The second threshold at which training, testing and sweeps score: reading text needs tight boxes."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Words, boxes and pairs of them; sums of these over pages give the scores of a set.

    >>> Counts(matched=1, boxes=1, words=3).hmean
    0.5
    """

    matched: int = 0
    boxes: int = 0
    words: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.matched + other.matched, self.boxes + other.boxes, self.words + other.words)

    @property
    def precision(self) -> float:
        """Without boxes 1 if the page has no words either, else 0: the protocol's rule for a page."""
        return self.matched / self.boxes if self.boxes else float(self.words == 0)

    @property
    def recall(self) -> float:
        return self.matched / self.words if self.words else 1.0

    @property
    def hmean(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @property
    def missed(self) -> int:
        return self.words - self.matched

    @property
    def false(self) -> int:
        return self.boxes - self.matched


class HmeanIoU(Metric):
    """Share of words found, share of detections right, and their harmonic mean, over all pages together.

    >>> metric = HmeanIoU()
    >>> metric.update([[0, 0, 8, 0, 8, 2, 0, 2]], [[0, 0, 8, 0, 8, 2, 0, 2], [0, 5, 8, 5, 8, 7, 0, 7]])
    >>> scores = metric.compute()
    >>> scores["precision"].item(), scores["recall"].item()
    (1.0, 0.5)

    `also_at` are more IoU thresholds for the same overlaps: `HmeanIoU(also_at=[0.7])` has `precision_70`, `recall_70`
    and `hmean_70` too.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True
    matched: Tensor
    also_matched: Tensor
    detections: Tensor
    words: Tensor

    def __init__(
        self,
        iou_threshold: float = 0.5,
        ignore_threshold: float = 0.5,
        also_at: Sequence[float] = (),
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        named = [("iou_threshold", iou_threshold), ("ignore_threshold", ignore_threshold)]
        for name, value in named + [("also_at", value) for value in also_at]:
            if not 0 <= value < 1:
                problem = f"{name}={value} must be a number >= 0 and < 1"
                raise ConfigError(problem, setting=f"HmeanIoU.{name}", value=value)
        self.iou_threshold = iou_threshold
        self.ignore_threshold = ignore_threshold
        self.also_at = tuple(also_at)
        self.last_page: tuple[Counts, ...] = ()
        """What the last `update` added, at `iou_threshold` and at each of `also_at`."""
        self.add_state("also_matched", torch.zeros(len(self.also_at), dtype=torch.int64), dist_reduce_fx="sum")
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
            raise ValueError(f"gt_ignore has shape {ignore.shape} for {len(gts)} gt_polygons. Pass one flag per word")
        thresholds = (self.iou_threshold, *self.also_at)
        overlaps = measure_overlaps(dets, gts, ignore, self.ignore_threshold)
        matched = [len(overlaps.match(threshold)) for threshold in thresholds]
        boxes, words = int((~overlaps.dropped).sum()), int((~ignore).sum())
        self.matched += matched[0]
        self.also_matched += torch.tensor(matched[1:], dtype=torch.int64, device=self.device)
        self.detections += boxes
        self.words += words
        self.last_page = tuple(Counts(count, boxes, words) for count in matched)

    def compute(self) -> dict[str, Tensor]:
        """Scores `precision`, `recall` and `hmean`, and the same at each threshold of `also_at`.

        Without words to find, recall is 1, and precision is 1 if nothing was detected either, else 0: the
        protocol's rule for a page. If there are words and nothing was detected, all three are 0.
        """
        scores = self._scores(int(self.matched))
        for threshold, matched in zip(self.also_at, self.also_matched.tolist(), strict=True):
            scores |= {f"{name}_{round(threshold * 100)}": value for name, value in self._scores(matched).items()}
        return {key: torch.tensor(value, dtype=torch.float32, device=self.device) for key, value in scores.items()}

    def _scores(self, matched: int) -> dict[str, float]:
        counts = Counts(matched, int(self.detections), int(self.words))
        return {"precision": counts.precision, "recall": counts.recall, "hmean": counts.hmean}


@dataclass(frozen=True, slots=True, eq=False)
class Overlaps:
    """Words and detections of a page that touch: pair k is word `gt[k]` and detection `det[k]`, in the words' order."""

    gt: NDArray[np.int64]
    det: NDArray[np.int64]
    shared: NDArray[np.float64]
    """Area that the two share."""
    gt_areas: NDArray[np.float64]
    det_areas: NDArray[np.float64]
    ignore: NDArray[np.bool_]
    """Words that do not count."""
    dropped: NDArray[np.bool_]
    """Detections that do not count: they are in an ignored word."""

    @property
    def iou(self) -> NDArray[np.float64]:
        """Shared area over the area of the union, per pair."""
        union = self.gt_areas[self.gt] + self.det_areas[self.det] - self.shared
        return np.divide(self.shared, union, out=np.zeros(len(union)), where=union > 0)

    def match(self, iou_threshold: float, kept: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """(M, 2): each word in turn takes the first free detection whose IoU with it is above the threshold.

        With `kept`, as if only these detections had been made.
        """
        free_gt, free_det = ~self.ignore, ~self.dropped
        if kept is not None:
            free_det &= kept
        taken = []
        above = self.iou > iou_threshold
        for gt, det in zip(self.gt[above].tolist(), self.det[above].tolist(), strict=True):
            if free_gt[gt] and free_det[det]:
                free_gt[gt] = free_det[det] = False
                taken.append((gt, det))
        return np.array(taken, dtype=np.int64).reshape(-1, 2)


def measure_overlaps(dets: Rings, gts: Rings, ignore: NDArray[np.bool_], ignore_threshold: float = 0.5) -> Overlaps:
    """Which words and detections touch, and how much.

    A detection with more than `ignore_threshold` of its area in one ignored word does not count. A self-crossing
    outline counts by the even-odd rule; a polygon without area matches nothing, and counts.
    """
    pairs = touching_pairs(gts.bounds, dets.bounds)
    gt, det = pairs.T
    no_holes = np.zeros(len(gts) + 1, dtype=np.int64)
    shared = shared_areas(gts.vertices, gts.starts, dets.vertices, dets.starts, pairs, no_holes[:0], no_holes)
    gt_areas, det_areas = ring_areas(gts.vertices, gts.starts), ring_areas(dets.vertices, dets.starts)
    dropped = np.zeros(len(dets), dtype=np.bool_)
    dropped[det[ignore[gt] & (shared > ignore_threshold * det_areas[det])]] = True
    return Overlaps(gt, det, shared, gt_areas, det_areas, ignore, dropped)
