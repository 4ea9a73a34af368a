"""One page: its scores and its errors with their causes; curves and calibration over all pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.evaluation import CLEvalMetric
from ocr.evaluation.boxes import BoxesFromMap, Detections
from ocr.evaluation.hmean import TIGHT_IOU, Counts
from ocr.geometry.polygons import Polygons
from ocr.inspect.causes import FalseBox, MissedWord, cause_of_false, cause_of_miss, collect_evidence
from ocr.inspect.page import IOU, MatchedPage, PageInput
from ocr.inspect.shapes import Shape
from ocr.pipeline.targets import Targets

MISSED, FALSE = "missed", "false"
BOX_THRESH_LEVELS = tuple(round(0.05 * step, 2) for step in range(2, 20))
IOU_LEVELS = tuple(round(0.05 * step, 2) for step in range(10, 20))


@dataclass(frozen=True, slots=True)
class Error:
    """One missed word or false box."""

    page: str
    kind: str
    index: int
    """Of the word or the box on its page."""
    cause: str
    detail: str
    points: list[list[float]]
    """On the page."""
    height: float
    """Pixels of the map."""
    contrast: float
    iou: float
    score: float | None = None
    text: str | None = None
    setting: str | None = None
    """The threshold that hides a word, and the value that would show it."""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A word or a box for scores by group: how it looks, and whether it was found or is right."""

    shape: Shape
    good: bool


@dataclass(frozen=True, slots=True, eq=False)
class PageResult:
    """One page."""

    name: str
    size: tuple[int, int]
    counts: Counts
    tight: Counts
    cleval: tuple[float, float, float]
    """Precision, recall, H-mean."""
    cleval_sums: NDArray[np.int64]
    errors: list[Error]
    words: list[Measured]
    boxes: list[Measured]
    truth: Polygons
    """On the page, like the detections."""
    detections: Detections
    found: NDArray[np.bool_]
    """Per word of the annotation, ignored ones too: whether a box matches it."""
    right: NDArray[np.bool_]
    """Per box: whether it matches a word."""
    candidates: NDArray[np.float64]
    """(N, 2): score of each box, including those under `box_thresh`, and whether it matches a word."""
    curves: dict[str, dict[float, Counts]]
    """Counts at each value of `thresh`, `box_thresh` and `iou`."""

    @property
    def missed(self) -> int:
        return self.counts.missed

    @property
    def false(self) -> int:
        return self.counts.false


def evaluate_page(given: PageInput, boxes: BoxesFromMap, targets: Targets | None) -> PageResult:
    """Score one page and find the cause of each of its errors."""
    page = MatchedPage(given, boxes, targets)
    metric = CLEvalMetric()
    metric.update(page.detections.polygons, given.truth)
    cleval = metric.compute()
    counted, kept = ~given.truth.ignore, ~page.overlaps.dropped
    return PageResult(
        name=given.name,
        size=given.size,
        counts=_counts_at(page, IOU),
        tight=_counts_at(page, TIGHT_IOU),
        cleval=(float(cleval["det_p"]), float(cleval["det_r"]), float(cleval["det_h"])),
        cleval_sums=metric.sums.numpy().copy(),
        errors=_errors(page),
        words=[Measured(page.word_shapes[i], bool(page.det_of_gt[i] >= 0)) for i in np.flatnonzero(counted).tolist()],
        boxes=[Measured(page.box_shapes[i], bool(page.gt_of_det[i] >= 0)) for i in np.flatnonzero(kept).tolist()],
        truth=given.truth,
        detections=page.detections,
        found=page.det_of_gt >= 0,
        right=page.gt_of_det >= 0,
        candidates=_scored_candidates(page),
        curves=_curves(page),
    )


def _counts_at(page: MatchedPage, iou: float) -> Counts:
    overlaps = page.overlaps
    return Counts(len(overlaps.match(iou)), int((~overlaps.dropped).sum()), int((~overlaps.ignore).sum()))


def _errors(page: MatchedPage) -> list[Error]:
    (missed, false), truth = collect_evidence(page), page.given.truth
    words, boxes = list(truth), list(page.detections.polygons)

    def error(
        kind: str, index: int, outline: NDArray[np.float32], evidence: MissedWord | FalseBox, **more: Any
    ) -> Error:
        cause, detail = cause_of_miss(evidence) if isinstance(evidence, MissedWord) else cause_of_false(evidence)
        hidden = _hidden_by(cause, evidence) if isinstance(evidence, MissedWord) else {"score": evidence.score}
        points = np.round(outline.astype(np.float64), 1).tolist()
        look = evidence.shape
        return Error(
            page.given.name,
            kind,
            index,
            cause,
            detail,
            points,
            look.height,
            look.contrast,
            evidence.iou,
            **hidden,
            **more,
        )

    errors = [error(MISSED, at, words[at], word, text=truth.texts[at]) for at, word in missed.items()]
    return errors + [error(FALSE, at, boxes[at], box) for at, box in false.items()]


def _hidden_by(cause: str, word: MissedWord) -> dict[str, Any]:
    """Score, setting and value at which a word would be found, if a threshold is to blame."""
    if cause == "merged" and word.apart_at is not None:
        return {"setting": "thresh", "value": word.apart_at}
    if cause == "under a threshold" and word.loose is not None:
        return {"score": word.loose.score, "setting": word.loose.setting, "value": word.loose.value}
    return {}


def _scored_candidates(page: MatchedPage) -> NDArray[np.float64]:
    candidates = page.candidates[page.settings.thresh]
    right = np.zeros(len(candidates.boxes), dtype=np.bool_)
    right[candidates.match(0)[:, 1]] = True
    kept = ~candidates.overlaps.dropped
    return np.column_stack([candidates.boxes.scores[kept].astype(np.float64), right[kept]])


def _curves(page: MatchedPage) -> dict[str, dict[float, Counts]]:
    settings, words = page.settings, int((~page.overlaps.ignore).sum())

    def at(thresh: float, box_thresh: float) -> Counts:
        candidates = page.candidates[thresh]
        kept = (candidates.boxes.scores >= np.float32(box_thresh)) & ~candidates.overlaps.dropped
        return Counts(len(candidates.match(box_thresh)), int(kept.sum()), words)

    levels = sorted({*BOX_THRESH_LEVELS, settings.box_thresh})
    return {
        "thresh": {level: at(level, settings.box_thresh) for level in page.candidates},
        "box_thresh": {level: at(settings.thresh, level) for level in levels},
        "iou": {level: _counts_at(page, level) for level in IOU_LEVELS},
    }


# -- sums over pages

BINS = 10


@dataclass(frozen=True, slots=True)
class ScoreBin:
    """Boxes with similar scores: in calibration, the share that is right equals the mean score."""

    low: float
    high: float
    boxes: int
    mean_score: float
    right: float


def sum_curves(pages: Sequence[PageResult]) -> dict[str, dict[float, Counts]]:
    """The curves of all pages together, by rising values."""
    sums: dict[str, dict[float, Counts]] = {}
    for page in pages:
        for name, curve in page.curves.items():
            total = sums.setdefault(name, {})
            for value, counts in curve.items():
                total[value] = total.get(value, Counts()) + counts
    return {name: {value: curve[value] for value in sorted(curve)} for name, curve in sums.items()}


def all_candidates(pages: Sequence[PageResult]) -> NDArray[np.float64]:
    """(N, 2): score and whether it matches a word, of every box of the set, including those under `box_thresh`."""
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
