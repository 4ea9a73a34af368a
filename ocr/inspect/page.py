"""One page, matched: which words were found, which boxes are right, and what other settings of the boxes would find."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.evaluation.boxes import BoxesFromMap, Detections
from ocr.evaluation.hmean import Overlaps, measure_overlaps
from ocr.geometry.kernels.overlap import read_rings
from ocr.geometry.polygons import Polygons
from ocr.inspect.shapes import Gray, Rectangle, Shape, measure_shapes
from ocr.pipeline.targets import Targets

IOU = 0.5
"""A box finds a word above this overlap."""
THRESH_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True, eq=False)
class PageInput:
    """What the model saw and said: `image_hwc` and `prob_map` have one pixel for another."""

    name: str
    image_hwc: NDArray[np.uint8]
    prob_map: NDArray[np.float32]
    inverse_matrix: NDArray[np.float64]
    """From the map to the page."""
    size: tuple[int, int]
    """Width and height of the page."""
    truth: Polygons
    """On the page."""


class LooseMatch(NamedTuple):
    """The setting of the boxes that hides a word, the value that would show it, and the score of its box."""

    setting: str
    value: float
    score: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """All boxes of one `thresh`, including those under `box_thresh`, and how they overlap the words."""

    boxes: Detections
    overlaps: Overlaps

    def match(self, box_thresh: float) -> NDArray[np.int64]:
        return self.overlaps.match(IOU, self.boxes.scores >= np.float32(box_thresh))


@dataclass(eq=False)
class MatchedPage:
    """A page with its words and boxes, matched as `ocr test` does."""

    given: PageInput
    settings: BoxesFromMap
    targets: Targets | None
    """Those that the model has learnt; None if unknown."""
    detections: Detections = field(init=False)
    overlaps: Overlaps = field(init=False)

    def __post_init__(self) -> None:
        given = self.given
        self.detections = self.settings(given.prob_map, given.inverse_matrix, given.size)
        self.overlaps = overlaps_of(self.detections, given.truth)
        pairs = self.overlaps.match(IOU)
        self.det_of_gt = np.full(len(given.truth), -1, dtype=np.int64)
        self.gt_of_det = np.full(len(self.detections), -1, dtype=np.int64)
        self.det_of_gt[pairs[:, 0]], self.gt_of_det[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]

    @property
    def missed(self) -> NDArray[np.int64]:
        """Words that count and that no box matches."""
        return np.flatnonzero((self.det_of_gt < 0) & ~self.overlaps.ignore)

    @property
    def false(self) -> NDArray[np.int64]:
        """Boxes that count and that match no word."""
        return np.flatnonzero((self.gt_of_det < 0) & ~self.overlaps.dropped)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """From the page to the map."""
        return np.linalg.inv(np.asarray(self.given.inverse_matrix, dtype=np.float64))

    @cached_property
    def truth_on_map(self) -> Polygons:
        return self.given.truth.moved(self.matrix)

    @cached_property
    def boxes_on_map(self) -> Polygons:
        return self.detections.polygons.moved(self.matrix)

    @cached_property
    def rectangle(self) -> Rectangle:
        """The page on the map."""
        return page_rectangle(self.given)

    @cached_property
    def gray(self) -> Gray:
        return np.asarray(cv2.cvtColor(self.given.image_hwc, cv2.COLOR_RGB2GRAY), dtype=np.uint8)

    @cached_property
    def word_shapes(self) -> list[Shape]:
        return measure_shapes(self.truth_on_map, self.gray, self.rectangle)

    @cached_property
    def box_shapes(self) -> list[Shape]:
        return measure_shapes(self.boxes_on_map, self.gray, self.rectangle)

    @cached_property
    def candidates(self) -> dict[float, Candidates]:
        """Boxes at every `thresh` of the curve and of the settings, whatever their scores."""
        levels = sorted({*THRESH_LEVELS, self.settings.thresh})
        return {level: self._candidates(thresh=level) for level in levels}

    @cached_property
    def left_out(self) -> NDArray[np.bool_]:
        """Words that count, but which the targets leave out of the loss at this size."""
        if self.targets is None:
            return np.zeros(len(self.given.truth), dtype=np.bool_)
        left_out: NDArray[np.bool_] = self.targets.shapes(self.truth_on_map).reach == 0
        return left_out & ~self.overlaps.ignore

    @cached_property
    def loose(self) -> dict[int, LooseMatch]:
        """Missed words that a setting hides; that which has to change least comes first: `max_candidates`,
        `box_thresh`, `min_size`, `thresh`."""
        hidden: dict[int, LooseMatch] = {}
        settings, missed = self.settings, self.missed
        small = self._candidates(min_size=0)
        # Far below, the map has outlines everywhere.
        lower = [level for level in reversed(self.candidates) if settings.thresh / 2 <= level < settings.thresh]
        for word, score in _best_scores(self.candidates[settings.thresh], missed).items():
            setting = "box_thresh" if score < settings.box_thresh else "max_candidates"
            hidden[word] = LooseMatch(setting, score, score)
        for word, score in _best_scores(small, missed).items():
            hidden.setdefault(word, LooseMatch("min_size", 0.0, score))
        for level in lower:
            for word, score in _best_scores(self.candidates[level], missed).items():
                hidden.setdefault(word, LooseMatch("thresh", level, score))
        return hidden

    @cached_property
    def apart_at(self) -> dict[int, float]:
        """For missed words: the first higher `thresh` at which a box with a sufficient score matches."""
        levels: dict[int, float] = {}
        for level, candidates in self.candidates.items():
            if level > self.settings.thresh:
                for word in candidates.match(self.settings.box_thresh)[:, 0].tolist():
                    levels.setdefault(word, level)
        return {word: levels[word] for word in self.missed.tolist() if word in levels}

    @cached_property
    def among_words(self) -> Overlaps:
        """How words overlap each other, ignored ones too."""
        rings = read_rings(self.given.truth, "truth").in_float64()
        return measure_overlaps(rings, rings, np.zeros(len(rings), dtype=np.bool_))

    def has_twin(self, word: int) -> bool:
        """Whether another word that counts has the same place."""
        pairs = self.among_words
        other = (pairs.gt == word) & (pairs.det != word) & ~self.overlaps.ignore[pairs.det]
        return bool((pairs.iou[other] > IOU).any())

    def under_ignored(self, word: int) -> float:
        """The largest share of a word that one ignored region covers."""
        pairs = self.among_words
        ignored = (pairs.gt == word) & self.overlaps.ignore[pairs.det]
        area = float(pairs.gt_areas[word])
        return float(pairs.shared[ignored].max()) / area if ignored.any() and area > 0 else 0.0

    def probability_in(self, word: int) -> float:
        """Mean of the map inside a word."""
        outline = self.truth_on_map.vertices[slice(*self.truth_on_map.offsets[word : word + 2].tolist())]
        mask = np.zeros(self.given.prob_map.shape, dtype=np.uint8)
        cv2.fillPoly(mask, [np.round(outline).astype(np.int32)], 1)
        return float(cv2.mean(self.given.prob_map, mask)[0])

    def outline_of_box(self, box: int) -> NDArray[np.float32]:
        """On the map."""
        return self.boxes_on_map.vertices[slice(*self.boxes_on_map.offsets[box : box + 2].tolist())]

    def _candidates(self, **changed: float) -> Candidates:
        given = self.given
        boxes = replace(self.settings, box_thresh=0.0, max_candidates=None, **changed)  # type: ignore[arg-type]
        detections = boxes(given.prob_map, given.inverse_matrix, given.size)
        return Candidates(detections, overlaps_of(detections, given.truth))


def page_rectangle(page: PageInput) -> Rectangle:
    """Where the page is on its map, which can have padding around it."""
    width, height = page.size
    corners = Polygons.pack([[[0, 0], [width, 0], [width, height], [0, height]]])
    matrix = np.linalg.inv(page.inverse_matrix).astype(np.float64)
    left, top, right, bottom = corners.moved(matrix).bounds[0].tolist()
    return left, top, right, bottom


def overlaps_of(detections: Detections, truth: Polygons) -> Overlaps:
    """How boxes and words overlap on the page, as `ocr test` measures it."""
    boxes = read_rings(detections.polygons, "boxes").in_float64()
    return measure_overlaps(boxes, read_rings(truth, "words").in_float64(), truth.ignore)


def _best_scores(candidates: Candidates, words: NDArray[np.int64]) -> dict[int, float]:
    """For each of the words that a box overlaps enough: the best score of such a box."""
    pairs = candidates.overlaps
    enough = (pairs.iou > IOU) & ~pairs.dropped[pairs.det] & np.isin(pairs.gt, words)
    best: dict[int, float] = {}
    for word, box in zip(pairs.gt[enough].tolist(), pairs.det[enough].tolist(), strict=True):
        best[word] = max(best.get(word, 0.0), float(candidates.boxes.scores[box]))
    return best
