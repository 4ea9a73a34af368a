"""Scores over thresholds, what another `box_thresh` would cost, and whether scores of boxes mean what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ocr.evaluation.hmean import Counts
from ocr.inspect.result import PageResult

BINS = 10


@dataclass(frozen=True, slots=True)
class Point:
    """Scores of the whole set at one value of a threshold."""

    value: float
    counts: Counts


@dataclass(frozen=True, slots=True)
class ScoreBin:
    """Boxes with similar scores: in calibration, the share that is right equals the mean score."""

    low: float
    high: float
    boxes: int
    mean_score: float
    right: float


def sum_curves(pages: Sequence[PageResult]) -> dict[str, list[Point]]:
    """The curves of all pages together."""
    sums: dict[str, dict[float, Counts]] = {}
    for page in pages:
        for name, curve in page.curves.items():
            own = sums.setdefault(name, {})
            for value, counts in curve.items():
                own[value] = own.get(value, Counts()) + counts
    return {name: [Point(value, curve[value]) for value in sorted(curve)] for name, curve in sums.items()}


def best_point(curve: Sequence[Point]) -> Point:
    """The highest H-mean; of equal ones the first."""
    return max(curve, key=lambda point: point.counts.hmean)


def all_candidates(pages: Sequence[PageResult]) -> NDArray[np.float64]:
    """(N, 2): score and whether it matches a word, of every box of the set, also of those under `box_thresh`."""
    return np.concatenate([np.zeros((0, 2)), *(page.candidates for page in pages)])


def cost_of_lowering(candidates: NDArray[np.float64], box_thresh: float, lower: float) -> tuple[int, int]:
    """Words and false boxes that come with a lower `box_thresh`."""
    scores, right = candidates.T
    added = (scores >= lower) & (scores < box_thresh)
    return int((right[added] > 0).sum()), int((right[added] == 0).sum())


def calibrate(candidates: NDArray[np.float64]) -> tuple[list[ScoreBin], float]:
    """Boxes by their scores, and the expected calibration error: the mean distance of score and share right."""
    scores, right = candidates.T
    room = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    bins = []
    for index in range(BINS):
        mine = room == index
        if mine.any():
            low, high = index / BINS, (index + 1) / BINS
            bins.append(ScoreBin(low, high, int(mine.sum()), float(scores[mine].mean()), float(right[mine].mean())))
    total = sum(item.boxes for item in bins)
    error = sum(item.boxes * abs(item.mean_score - item.right) for item in bins)
    return bins, error / total if total else 0.0
