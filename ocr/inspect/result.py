"""The result of one page: its scores, its errors with their causes, and what sums over pages are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ocr.evaluation import CLEvalMetric
from ocr.evaluation.boxes import BoxesFromMap, Detections
from ocr.evaluation.hmean import TIGHT_IOU, Counts
from ocr.geometry.polygons import Polygons
from ocr.inspect.causes import cause_of_false, cause_of_miss
from ocr.inspect.evidence import MissedWord, collect_evidence
from ocr.inspect.page import IOU, JudgedPage, PageInput
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
    """(N, 2): score of each box, also of those under `box_thresh`, and whether it matches a word."""
    curves: dict[str, dict[float, Counts]]
    """Counts at each value of `thresh`, `box_thresh` and `iou`."""

    @property
    def missed(self) -> int:
        return self.counts.missed

    @property
    def false(self) -> int:
        return self.counts.false


def judge(given: PageInput, boxes: BoxesFromMap, targets: Targets | None) -> PageResult:
    """Score one page and find the cause of each of its errors."""
    page = JudgedPage(given, boxes, targets)
    metric = CLEvalMetric()
    metric.update(page.found.polygons, given.truth)
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
        words=[Measured(page.words[i], bool(page.det_of_gt[i] >= 0)) for i in np.flatnonzero(counted).tolist()],
        boxes=[Measured(page.boxes[i], bool(page.gt_of_det[i] >= 0)) for i in np.flatnonzero(kept).tolist()],
        truth=given.truth,
        detections=page.found,
        found=page.det_of_gt >= 0,
        right=page.gt_of_det >= 0,
        candidates=_scored_candidates(page),
        curves=_curves(page),
    )


def _counts_at(page: JudgedPage, iou: float) -> Counts:
    overlaps = page.overlaps
    return Counts(len(overlaps.match(iou)), int((~overlaps.dropped).sum()), int((~overlaps.ignore).sum()))


def _errors(page: JudgedPage) -> list[Error]:
    evidence, name, truth = collect_evidence(page), page.given.name, page.given.truth
    outlines = list(truth), list(page.found.polygons)
    errors = []
    for index, word in evidence.missed.items():
        cause, detail = cause_of_miss(word)
        score, setting, value = _hidden_by(cause, word)
        look = word.shape
        errors.append(
            Error(
                name, MISSED, index, cause, detail, _points(outlines[0][index]), look.height, look.contrast, word.iou,
                score, truth.texts[index], setting, value,
            )
        )  # fmt: skip
    for index, box in evidence.false.items():
        cause, detail = cause_of_false(box)
        look = box.shape
        errors.append(
            Error(
                name, FALSE, index, cause, detail, _points(outlines[1][index]), look.height, look.contrast, box.iou,
                box.score,
            )
        )  # fmt: skip
    return errors


def _hidden_by(cause: str, word: MissedWord) -> tuple[float | None, str | None, float | None]:
    """Score, setting and value at which a word would be found, if a threshold is to blame."""
    if cause == "merged" and word.apart_at is not None:
        return None, "thresh", word.apart_at
    if cause == "under a threshold" and word.loose is not None:
        return word.loose.score, word.loose.setting, word.loose.value
    return None, None, None


def _points(outline: NDArray[np.float32]) -> list[list[float]]:
    points: list[list[float]] = np.round(outline.astype(np.float64), 1).tolist()
    return points


def _scored_candidates(page: JudgedPage) -> NDArray[np.float64]:
    own = page.candidates[page.settings.thresh]
    right = np.zeros(len(own.found), dtype=np.bool_)
    right[own.match(0)[:, 1]] = True
    kept = ~own.overlaps.dropped
    return np.column_stack([own.found.scores[kept].astype(np.float64), right[kept]])


def _curves(page: JudgedPage) -> dict[str, dict[float, Counts]]:
    settings, words = page.settings, int((~page.overlaps.ignore).sum())

    def at(thresh: float, box_thresh: float) -> Counts:
        candidates = page.candidates[thresh]
        kept = (candidates.found.scores >= np.float32(box_thresh)) & ~candidates.overlaps.dropped
        return Counts(len(candidates.match(box_thresh)), int(kept.sum()), words)

    levels = sorted({*BOX_THRESH_LEVELS, settings.box_thresh})
    return {
        "thresh": {level: at(level, settings.box_thresh) for level in page.candidates},
        "box_thresh": {level: at(settings.thresh, level) for level in levels},
        "iou": {level: _counts_at(page, level) for level in IOU_LEVELS},
    }
