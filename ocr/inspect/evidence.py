"""What speaks for one cause or another: plain numbers about each missed word and each false box of a page."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ocr.inspect.page import JudgedPage
from ocr.inspect.shapes import Shape, Texture, measure_texture

MOSTLY = 0.5
"""Share of an outline from which it counts as covered by another one, or as inside it."""
Sides = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class LooseMatch:
    """The setting of the boxes that hides a word, and the value that would show it."""

    setting: str
    value: float
    score: float


@dataclass(frozen=True, slots=True)
class MissedWord:
    """A word that no box matches. Lengths are pixels of the map."""

    shape: Shape
    relative_height: float = 1.0
    """Height over the median of the page."""
    outside: float = 0.0
    """Share of its area that is beyond the page."""
    edge_distance: float = 100.0
    """From the nearest edge of the page; negative: beyond it."""
    left_out: bool = False
    """The targets leave it out of the loss, so nothing was learnt about it."""
    under_ignored: float = 0.0
    """Share of its area that one ignored region covers."""
    merged_with: int = 0
    """Other words that the same box covers."""
    apart_at: float | None = None
    """A higher `thresh` at which a box of its own matches."""
    pieces: int = 0
    """Boxes that are mostly inside it."""
    pieces_cover: float = 0.0
    """Share of the word that they cover together."""
    has_twin: bool = False
    """Another word has the same place."""
    loose: LooseMatch | None = None
    iou: float = 0.0
    """Of the best box."""
    sides: Sides = (0.0, 0.0, 0.0, 0.0)
    """How far that box reaches beyond the word: left, top, right, bottom."""
    covered: float = 0.0
    """Share of the word that it covers."""
    probability: float = 0.0
    """Mean of the map in the word."""


@dataclass(frozen=True, slots=True)
class FalseBox:
    """A box that matches no word."""

    shape: Shape
    texture: Texture
    score: float
    relative_height: float = 1.0
    words_covered: int = 0
    """Words that it covers mostly."""
    inside: float = 0.0
    """Share of its area in the word that it overlaps most."""
    covers: float = 0.0
    """Share of that word that it covers."""
    iou: float = 0.0
    word_found: bool = False
    """Another box matches that word."""
    others_inside: int = 0
    """Other boxes that are mostly inside that word."""
    sides: Sides = (0.0, 0.0, 0.0, 0.0)
    edge_distance: float = 100.0


@dataclass(slots=True)
class PageEvidence:
    """All errors of a page: what is known about word or box `index`."""

    missed: dict[int, MissedWord] = field(default_factory=dict)
    false: dict[int, FalseBox] = field(default_factory=dict)


def collect_evidence(page: JudgedPage) -> PageEvidence:
    """Look at every missed word and every false box."""
    relations = _Relations(page)
    evidence = PageEvidence()
    for word in page.missed.tolist():
        evidence.missed[word] = relations.missed_word(word)
    for box in page.false.tolist():
        evidence.false[box] = relations.false_box(box)
    return evidence


class _Relations:
    """How the words and boxes of a page lie to each other."""

    def __init__(self, page: JudgedPage) -> None:
        self.page, self.overlaps = page, page.overlaps
        overlaps = page.overlaps
        self.iou = overlaps.iou
        self.covers = _share(overlaps.shared, overlaps.gt_areas[overlaps.gt])
        self.inside = _share(overlaps.shared, overlaps.det_areas[overlaps.det])
        heights = [shape.height for shape in page.words] or [shape.height for shape in page.boxes]
        self.usual_height = float(np.median(heights)) if heights else 1.0
        self.word_bounds, self.box_bounds = page.truth_on_map.bounds, page.found_on_map.bounds

    def missed_word(self, word: int) -> MissedWord:
        page, mine = self.page, np.flatnonzero(self.overlaps.gt == word)
        shape, counted = page.words[word], mine[~self.overlaps.dropped[self.overlaps.det[mine]]]
        pieces = counted[self.inside[counted] >= MOSTLY]
        best = counted[np.argmax(self.iou[counted])] if len(counted) else None
        outside, distance = self._beyond_page(self.word_bounds[word])
        return MissedWord(
            shape=shape,
            relative_height=shape.height / self.usual_height,
            outside=outside,
            edge_distance=distance,
            left_out=bool(page.left_out[word]),
            under_ignored=page.under_ignored(word),
            merged_with=self._merged_with(counted),
            apart_at=page.apart_at.get(word),
            pieces=len(pieces),
            pieces_cover=float(self.covers[pieces].sum()),
            has_twin=page.has_twin(word),
            loose=self._loose(word),
            iou=0.0 if best is None else float(self.iou[best]),
            sides=self._sides(best),
            covered=0.0 if best is None else float(self.covers[best]),
            probability=page.probability_in(word),
        )

    def false_box(self, box: int) -> FalseBox:
        page, mine = self.page, np.flatnonzero(self.overlaps.det == box)
        counted = mine[~self.overlaps.ignore[self.overlaps.gt[mine]]]
        shape = page.boxes[box]
        best = counted[np.argmax(self.overlaps.shared[counted])] if len(counted) else None
        _, distance = self._beyond_page(self.box_bounds[box])
        others = 0
        if best is not None:
            same = (self.overlaps.gt == self.overlaps.gt[best]) & (self.overlaps.det != box)
            others = int((self.inside[same] >= MOSTLY).sum())
        return FalseBox(
            shape=shape,
            texture=measure_texture(page.outline_of_box(box), page.gray),
            score=float(page.found.scores[box]),
            relative_height=shape.height / self.usual_height,
            words_covered=int((self.covers[counted] >= MOSTLY).sum()),
            inside=0.0 if best is None else float(self.inside[best]),
            covers=0.0 if best is None else float(self.covers[best]),
            iou=0.0 if best is None else float(self.iou[best]),
            word_found=best is not None and bool(page.det_of_gt[self.overlaps.gt[best]] >= 0),
            others_inside=others,
            sides=self._sides(best),
            edge_distance=distance,
        )

    def _merged_with(self, pairs: NDArray[np.int64]) -> int:
        """Other words that a box covers which covers this one."""
        most = 0
        for pair in pairs[self.covers[pairs] >= MOSTLY].tolist():
            same_box = (self.overlaps.det == self.overlaps.det[pair]) & (self.covers >= MOSTLY)
            most = max(most, int(same_box.sum()) - 1)
        return most

    def _loose(self, word: int) -> LooseMatch | None:
        found = self.page.loose.get(word)
        return None if found is None else LooseMatch(*found)

    def _sides(self, pair: int | None) -> Sides:
        if pair is None:
            return (0.0, 0.0, 0.0, 0.0)
        word = self.word_bounds[self.overlaps.gt[pair]]
        box = self.box_bounds[self.overlaps.det[pair]]
        outward = np.concatenate([word[:2] - box[:2], box[2:] - word[2:]])
        left, top, right, bottom = outward.tolist()
        return left, top, right, bottom

    def _beyond_page(self, bounds: NDArray[np.float32]) -> tuple[float, float]:
        """Share of a bounding box that is not on the page, and its distance to the nearest edge."""
        left, top, right, bottom = bounds.tolist()
        page_left, page_top, page_right, page_bottom = self.page.rectangle
        distance = min(left - page_left, top - page_top, page_right - right, page_bottom - bottom)
        width = max(0.0, min(right, page_right) - max(left, page_left))
        height = max(0.0, min(bottom, page_bottom) - max(top, page_top))
        area = (right - left) * (bottom - top)
        return (1 - width * height / area if area > 0 else 0.0), distance


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
