"""Labels that a detector contradicts: unlabelled text, and labels that are doubled, shifted, merged or on no text.

A rule looks at one page and returns suspects, each with a score from 0 to 1, a reason, and what would be right. How
many faults are found that were put into real labels: docs/errors.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.evaluation.boxes import BoxesFromMap
from ocr.inspect.causes import SURE_SCORE, logo_or_code, rule_or_border, unlabelled_text
from ocr.inspect.evidence import FalseBox
from ocr.inspect.label_frames import find_frame
from ocr.inspect.label_pieces import Merged, TextLayout, find_merged
from ocr.inspect.page import IOU, JudgedPage, PageInput
from ocr.inspect.shapes import measure_shapes, measure_texture

Outline = NDArray[np.float32]
Place = TypeVar("Place")
MISSING, DUPLICATE, SHIFTED, MERGED = "missing", "duplicate", "shifted", "merged"
UNSUPPORTED, PAGE = "unsupported", "page"
SUSPECT_KINDS = (PAGE, DUPLICATE, SHIFTED, MERGED, MISSING, UNSUPPORTED)

MIN_SCORE = 0.1
"""Suspects below it are not worth a look."""
COMMON = 0.02
"""From this share of the labels on, a kind of suspect is as likely a habit of the detector as a fault."""
GOOD_FIT = 0.6
"""IoU of a label with a box from which it is where it should be."""
SAME_SIZE = 0.5
"""Share of a label's size that a box must have, and the other way round, to be the text that the label was drawn on."""
REACH = 1.5
"""How far a label may have been moved, in its heights, across the text; along it also by its length."""
MOVED = 0.15, 0.4
"""How far a label is from its text, in lengths along it and heights across it: up to the first it is careless, from the
second on wrong. An IoU of 0.5 is 0.33."""
SLIVER = 0.5
"""Unlabelled text that is lower, relative to the labels of the page, is a rim of labelled text."""


@dataclass(frozen=True, slots=True, eq=False)
class Suspect:
    """One label, place or page that may be wrong; outlines are on the page."""

    kind: str
    score: float
    detail: str
    word: int | None = None
    """Index of the label; None for text without a label and for whole pages."""
    outline: Outline | None = None
    """The place; None for whole pages."""
    proposal: tuple[Outline, ...] | None = None
    """What should be there instead of the label; () for nothing, None if unknown."""
    matrix: NDArray[np.float64] | None = field(default=None, repr=False)
    """Moves all labels of the page to where they fit."""


def find_suspects(given: PageInput, boxes: BoxesFromMap) -> list[Suspect]:
    """The suspects of one page, the most suspicious first; the page alone if its labels are elsewhere altogether."""
    page = JudgedPage(given, boxes, None)
    frame = find_frame(page)
    if frame is not None:
        return [Suspect(PAGE, frame.score, frame.detail, matrix=frame.matrix)]
    rules = _Rules(page)
    found = [*rules.duplicates(), *rules.labels(), *rules.missing()]
    return sorted((suspect for suspect in found if suspect.score >= MIN_SCORE), key=lambda one: -one.score)


def rank_suspects(suspects: Iterable[tuple[Place, Suspect]], labels: int) -> list[tuple[Place, Suspect]]:
    """Suspects of all pages, each with the place of its page, the most suspicious first.

    A kind that many labels are suspected of is trusted less: the detector may know other units than these labels have.
    """
    by_kind: dict[str, list[tuple[Place, Suspect]]] = defaultdict(list)
    for place, suspect in suspects:
        by_kind[suspect.kind].append((place, suspect))
    ranked = []
    for found in by_kind.values():
        found.sort(key=lambda one: -one[1].score)
        for number, (place, suspect) in enumerate(found):
            trust = 1 / (1 + number / max(1.0, COMMON * labels))
            ranked.append((place, replace(suspect, score=suspect.score * trust)))
    return sorted(ranked, key=lambda one: -one[1].score)


class _Rules:
    """What speaks against the labels of one page. Lengths are pixels of the page."""

    def __init__(self, page: JudgedPage) -> None:
        self.page = page
        self.outlines = list(page.given.truth)
        self.counted = ~page.given.truth.ignore
        self.layout = TextLayout(page)
        self.explained: list[Outline] = []
        """Places that a suspect label should have been at."""

    def duplicates(self) -> Iterator[Suspect]:
        """Two labels in one place; the one that fits worse is suspected."""
        pairs, fit = self.page.among_words, self.layout.fit
        twice = (pairs.gt < pairs.det) & (pairs.iou > IOU) & self.counted[pairs.gt] & self.counted[pairs.det]
        self.doubled: set[int] = set()
        for first, second, iou in zip(pairs.gt[twice], pairs.det[twice], pairs.iou[twice], strict=True):
            worse = int(first if fit[first] < fit[second] else second)
            if worse not in self.doubled:
                self.doubled.add(worse)
                detail = f"another label has the same place (IoU {iou:.2f})"
                yield Suspect(DUPLICATE, 0.6 + 0.4 * float(iou), detail, worse, self.outlines[worse], ())

    def labels(self) -> Iterator[Suspect]:
        """Labels that are not where a box is."""
        for word in np.flatnonzero(self.counted).tolist():
            if word in self.doubled:
                continue
            merged = find_merged(self.layout, word)
            if merged is not None:
                yield self._merged(word, merged)
            elif self.layout.fit[word] < GOOD_FIT:
                suspect = self._shifted(word) or self._unsupported(word)
                if suspect is not None:
                    yield suspect

    def missing(self) -> Iterator[Suspect]:
        """Text of the map that is under no label."""
        given, page = self.page.given, self.page
        rest = given.prob_map.copy()
        for outline in page.truth_on_map:
            # Vertices far outside would overflow the integers of the drawing.
            cv2.fillPoly(rest, [np.round(outline.clip(-1e4, 1e4)).astype(np.int32)], 0.0)
        found = page.settings(rest, given.inverse_matrix, given.size)
        on_map = found.polygons.moved(page.matrix)
        shapes = measure_shapes(on_map, page.gray, page.rectangle)
        heights = [shape.height for shape in page.words] or [shape.height for shape in page.boxes]
        usual = float(np.median(heights)) if heights else 1.0
        free = self.layout.free_shares(found.polygons, self.explained)
        for number, outline in enumerate(found.polygons):
            shape, score = shapes[number], float(found.scores[number])
            texture = measure_texture(on_map.vertices[slice(*on_map.offsets[number : number + 2])], page.gray)
            box = FalseBox(shape, texture, score, shape.height / usual)
            if box.relative_height < SLIVER:
                continue
            doubts = (logo_or_code(box), rule_or_border(box), None if unlabelled_text(box) else "unlike text")
            sure = min(1.0, max(0.0, (score - 0.4) / (0.95 - 0.4))) * float(free[number])
            for doubt in doubts:
                sure *= 0.5 if doubt else 1.0
            detail = f"text without a label, score {score:.2f}"
            yield Suspect(MISSING, sure, detail, None, outline.copy(), (outline.copy(),))

    def _merged(self, word: int, merged: Merged) -> Suspect:
        return Suspect(MERGED, merged.score, merged.detail, word, self.outlines[word], merged.pieces)

    def _shifted(self, word: int) -> Suspect | None:
        """A box of the label's size, close by, that no other label has."""
        candidates = [
            (level, box, float(iou))
            for level in self.layout.levels
            for box, iou in enumerate(level.free_ious(word, self.page.settings.box_thresh))
            if iou >= 0
        ]
        # A label that is on a box in part was drawn for that one, and not for one further away.
        touched = max((iou for _, _, iou in candidates), default=0.0)
        best: Suspect | None = None
        for level, box, iou in candidates:
            score, detail = self._moved(word, level.bounds[box], float(level.scores[box]))
            if iou >= touched / 2 and score >= MIN_SCORE and (best is None or score > best.score):
                place = self.layout.outline(level, box)
                best = Suspect(SHIFTED, score, detail, word, self.outlines[word], (place,))
        if best is not None and best.proposal:
            self.explained.append(best.proposal[0])
        return best

    def _moved(self, word: int, box: NDArray[np.float32], sure: float) -> tuple[float, str]:
        """How likely the label was moved here from this box, and how far."""
        label = self.layout.words[word]
        length, height = (label[2:] - label[:2]).clip(1e-6).tolist()
        along, across = (np.abs(box[:2] + box[2:] - label[:2] - label[2:]) / 2).tolist()
        short = min(length, height)
        if across > REACH * short or along > max(REACH * short, length):
            return 0.0, ""
        alike = _ratio(float(box[2] - box[0]), length) * _ratio(float(box[3] - box[1]), height)
        if alike < SAME_SIZE:
            return 0.0, ""
        apart = (along / length + across / height - MOVED[0]) / (MOVED[1] - MOVED[0])
        detail = f"text of its size is {along / short:.1f} heights along it and {across / short:.1f} across it away"
        return sure * alike**0.5 * min(1.0, max(0.0, apart)), detail

    def _unsupported(self, word: int) -> Suspect | None:
        """Nothing in the map, and nothing that looks like text."""
        probability = self.page.probability_in(word)
        if probability > 0.25 or self.layout.fit[word] > 0.3:
            return None
        outline = self.page.truth_on_map.vertices[slice(*self.page.truth_on_map.offsets[word : word + 2])]
        texture = measure_texture(outline, self.page.gray)
        shape = self.page.words[word]
        empty = unlabelled_text(FalseBox(shape, texture, SURE_SCORE)) is None
        score = (0.6 if empty else 0.3) * (1 - probability)
        detail = f"the detector sees no text here ({probability:.2f})"
        return Suspect(UNSUPPORTED, score, f"{detail}, and there is hardly any print" if empty else detail, word,
                       self.outlines[word])  # fmt: skip


def _ratio(one: float, other: float) -> float:
    return min(one, other) / max(one, other, 1e-6)
