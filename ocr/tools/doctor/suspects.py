"""Labels that a detector contradicts: unlabelled text, and labels that are doubled, shifted, merged or on no text.

A rule looks at one page and returns suspects, each with a score from 0 to 1, a reason, and what would be right. How
many errors are found that were put into real labels: docs/errors.md.
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
from ocr.evaluation.hmean import measure_overlaps
from ocr.geometry.kernels.overlap import read_rings
from ocr.geometry.orientation import orientation_matrix, upright_size
from ocr.geometry.polygons import Polygons
from ocr.inspect.causes import SURE_SCORE, FalseBox, logo_or_code, rule_or_border, unlabelled_text
from ocr.inspect.page import IOU, Candidates, MatchedPage, PageInput, overlaps_of
from ocr.inspect.shapes import measure_shapes, measure_texture

Outline = NDArray[np.float32]
Place = TypeVar("Place")
MISSING, DUPLICATE, SHIFTED, MERGED = "missing", "duplicate", "shifted", "merged"
UNSUPPORTED, PAGE = "unsupported", "page"
SUSPECT_KINDS = (PAGE, DUPLICATE, SHIFTED, MERGED, MISSING, UNSUPPORTED)


@dataclass(frozen=True, slots=True, eq=False)
class Suspect:
    """One label, place or page that might be wrong; outlines are on the page."""

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


# -- labels of a whole page that are elsewhere: turned, mirrored, or drawn on an image of another size

MIN_LABELS = 4
"""Fewer labels match by chance, or not."""
LOST = 0.6
"""Other frames are tried if no larger share of the labels fits; of right ones a detector that works finds more."""
CLEAR_GAIN = 0.3
"""By how much the share must be larger in another frame."""
FITS_NOWHERE = 0.1
ROUNDS = 4
"""Of fitting a scale: each brings more labels within reach of their boxes."""
TURNS = {
    2: "mirrored", 3: "turned by 180 degrees", 4: "upside down", 5: "transposed", 6: "turned by 90 degrees clockwise",
    7: "transversed", 8: "turned by 90 degrees counterclockwise",
}  # fmt: skip


def find_frame(page: MatchedPage) -> Suspect | None:
    """The page, if most of its labels fit in another frame or nowhere; None if all is well, or nothing is known."""
    labels = page.given.truth
    counted = labels.select(~labels.ignore)
    if len(counted) < MIN_LABELS or len(page.detections) < MIN_LABELS:
        return None
    as_is = _share(page, counted)
    if as_is > LOST:
        return None
    share, detail, matrix = max(
        ((_share(page, counted.moved(matrix)), detail, matrix) for detail, matrix in _frames(page, counted)),
        key=lambda frame: frame[0],
    )
    if share >= as_is + CLEAR_GAIN:
        fits = f"{share:.0%} of the labels fit {detail}, {as_is:.0%} as they are"
        return Suspect(PAGE, 0.5 + share / 2, fits, matrix=matrix)
    fits = f"{as_is:.0%} of the labels fit what the detector finds, and no frame is better"
    return Suspect(PAGE, 0.5 - as_is, fits) if as_is <= FITS_NOWHERE else None


def _frames(page: MatchedPage, labels: Polygons) -> Iterator[tuple[str, NDArray[np.float64]]]:
    width, height = page.given.size
    for orientation, detail in TURNS.items():
        yield detail, orientation_matrix(orientation, *upright_size(orientation, width, height))
    for start in _scales(page.detections.polygons.bounds, labels.bounds):
        matrix = _fit_scale(page, labels, start)
        yield f"scaled by {matrix[0, 0]:.3f} x {matrix[1, 1]:.3f}", matrix


def _scales(boxes: NDArray[np.float32], labels: NDArray[np.float32]) -> Iterator[NDArray[np.float64]]:
    """Scales to begin with: from where text ends on the right and at the bottom, and from where its middle is."""
    for share in (0.5, 0.9, 1.0):
        ends = np.quantile(boxes[:, 2:], share, axis=0), np.quantile(labels[:, 2:], share, axis=0)
        yield np.asarray(ends[0] / np.maximum(ends[1], 1.0), dtype=np.float64)


def _fit_scale(page: MatchedPage, labels: Polygons, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Improve a scale by the boxes that it brings labels onto."""
    boxes, bounds = page.detections.polygons.bounds.astype(np.float64), labels.bounds.astype(np.float64)
    for _ in range(ROUNDS):
        pairs = overlaps_of(page.detections, labels.moved(np.diag([*scale, 1.0])))
        close = pairs.iou > 0.1
        if not close.any():
            break
        found, drawn = boxes[pairs.det[close]].reshape(-1, 2, 2), bounds[pairs.gt[close]].reshape(-1, 2, 2)
        scale = (found * drawn).sum(axis=(0, 1)) / np.maximum((drawn**2).sum(axis=(0, 1)), 1e-6)
    return np.diag([*scale, 1.0])


def _share(page: MatchedPage, labels: Polygons) -> float:
    return len(overlaps_of(page.detections, labels).match(IOU)) / len(labels)


# -- labels that hold several pieces of text

INSIDE = 0.7
"""Share of a box in a label from which it is a piece of it."""
MIN_PIECE = 0.5
"""Score of a piece."""
ROW = 0.65
"""Height of a row, relative to its label, if there are several."""
GAPS = 0.5, 2.5
"""Gaps between pieces of a line, in their heights: up to the first it is a space, from the second on a column."""
_LONG = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """All boxes of one `thresh`, in the frame of the text."""

    thresh: float
    candidates: Candidates
    bounds: NDArray[np.float32]
    owner: NDArray[np.int64]
    """Per box: the label that it matches best, -1 if none."""

    @property
    def scores(self) -> NDArray[np.float32]:
        return self.candidates.boxes.scores

    def free_ious(self, word: int, min_score: float) -> NDArray[np.float64]:
        """IoU of a label with each box; -1 for boxes that another label has, or that have a lower score."""
        overlaps = self.candidates.overlaps
        ious = np.zeros(len(self.scores))
        mine = overlaps.gt == word
        ious[overlaps.det[mine]] = overlaps.iou[mine]
        taken = (self.owner >= 0) & (self.owner != word)
        ious[taken | overlaps.dropped | (self.scores < np.float32(min_score))] = -1
        return ious


class TextLayout:
    """Bounds of labels and boxes with the text level, and how well each label fits a box."""

    def __init__(self, page: MatchedPage) -> None:
        self.page = page
        turn = _turn_level(page.detections.polygons)
        self.words = page.given.truth.moved(turn).bounds
        self.levels = [
            Level(thresh, one, one.boxes.polygons.moved(turn).bounds, _owners(one))
            for thresh, one in page.candidates.items()
            if thresh >= page.settings.thresh
        ]
        self.fit = np.zeros(len(self.words))
        for level in self.levels:
            pairs = level.candidates.overlaps
            enough = level.scores[pairs.det] >= MIN_PIECE
            np.maximum.at(self.fit, pairs.gt[enough], pairs.iou[enough])

    def outline(self, level: Level, box: int) -> Outline:
        """The rectangle around a box, on the page; labels are seldom finer."""
        polygons = level.candidates.boxes.polygons
        return _rectangle(polygons.vertices[slice(*polygons.offsets[box : box + 2])])

    def free_shares(self, boxes: Polygons, others: list[Outline]) -> NDArray[np.float64]:
        """Share of each box that is under none of the labels and others."""
        labels = self.page.given.truth.followed_by(Polygons.pack(others))
        rings = read_rings(labels, "labels").in_float64()
        pairs = measure_overlaps(read_rings(boxes, "boxes").in_float64(), rings, np.zeros(len(labels), dtype=np.bool_))
        covered = np.zeros(len(boxes))
        np.add.at(covered, pairs.det, pairs.shared)
        return np.clip(1 - covered / np.maximum(pairs.det_areas, 1e-6), 0, 1)


def find_merged(layout: TextLayout, word: int) -> Suspect | None:
    """Rows above each other, or pieces of one row far apart; None if the label holds one piece of text."""
    best: Suspect | None = None
    for level in layout.levels:
        pieces = _pieces(level, word)
        if len(pieces) < 2:
            continue
        found = _rows_apart(layout, level, word, pieces)
        # At a higher threshold every line falls into words.
        if found is None and level is layout.levels[0]:
            found = _columns_apart(layout, level, word, pieces)
        if found is not None and (best is None or found.score > best.score):
            best = found
    return best


def _pieces(level: Level, word: int) -> NDArray[np.int64]:
    pairs = level.candidates.overlaps
    inside = pairs.shared >= INSIDE * pairs.det_areas[pairs.det]
    mine = pairs.det[(pairs.gt == word) & inside & (level.scores[pairs.det] >= MIN_PIECE)]
    others = level.owner[mine]
    return np.asarray(mine[(others < 0) | (others == word)])


def _rows_apart(layout: TextLayout, level: Level, word: int, pieces: NDArray[np.int64]) -> Suspect | None:
    height = float(layout.words[word, 3] - layout.words[word, 1])
    rows: list[list[int]] = []
    for piece in pieces[np.argsort(level.bounds[pieces, 1])].tolist():
        top, bottom = level.bounds[piece, [1, 3]].tolist()
        last = level.bounds[rows[-1]] if rows else None
        if last is not None and last[:, 3].max() - top > 0.5 * min(bottom - top, float(np.ptp(last[:, [1, 3]]))):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    spans = [float(level.bounds[row, 3].max() - level.bounds[row, 1].min()) for row in rows]
    if len(rows) < 2 or max(spans) > ROW * height:
        return None
    score = min(float(level.scores[row].max()) for row in rows) * min(1.0, sum(spans) / height / 0.7)
    return _merged(layout, level, word, rows, score, f"{len(rows)} rows of text in one label")


def _columns_apart(layout: TextLayout, level: Level, word: int, pieces: NDArray[np.int64]) -> Suspect | None:
    order = pieces[np.argsort(level.bounds[pieces, 0])]
    left, top, right, bottom = level.bounds[order].T
    gaps = left[1:] - np.maximum.accumulate(right)[:-1]
    heights = np.minimum(bottom - top, float(layout.words[word, 3] - layout.words[word, 1]))
    relative = gaps / np.maximum(np.minimum(heights[1:], heights[:-1]), 1e-6)
    widest = int(np.argmax(relative))
    wide = (float(relative[widest]) - GAPS[0]) / (GAPS[1] - GAPS[0])
    if wide <= 0:
        return None
    sides = [order[: widest + 1].tolist(), order[widest + 1 :].tolist()]
    score = min(float(level.scores[side].max()) for side in sides) * min(1.0, wide)
    detail = f"pieces of text {relative[widest]:.1f} heights apart in one label"
    return _merged(layout, level, word, sides, score, detail)


def _merged(layout: TextLayout, level: Level, word: int, groups: list[list[int]], score: float, detail: str) -> Suspect:
    """Each group of boxes becomes a piece of the label."""
    outlines = list(level.candidates.boxes.polygons)
    pieces = tuple(_rectangle(np.concatenate([outlines[box] for box in group])) for group in groups)
    return Suspect(MERGED, score, detail, word, list(layout.page.given.truth)[word], pieces)


def _owners(candidates: Candidates) -> NDArray[np.int64]:
    """The label that each box matches best."""
    pairs, owner = candidates.overlaps, np.full(len(candidates.boxes), -1, dtype=np.int64)
    order = np.argsort(pairs.iou)
    matching = order[pairs.iou[order] > IOU]
    owner[pairs.det[matching]] = pairs.gt[matching]
    return owner


def _rectangle(points: Outline) -> Outline:
    """The smallest rectangle around points, clockwise from its left top corner; level if it nearly is."""
    low, high = points.min(axis=0), points.max(axis=0)
    upright = np.array([low, [high[0], low[1]], high, [low[0], high[1]]], dtype=np.float32)
    turned = cv2.boxPoints(cv2.minAreaRect(np.ascontiguousarray(points, dtype=np.float32)))
    if cv2.contourArea(turned) > 0.85 * cv2.contourArea(upright):
        return upright
    first = int(np.argmin(turned.sum(axis=1)))
    return np.roll(turned, -first, axis=0).astype(np.float32)


def _turn_level(boxes: Polygons) -> NDArray[np.float64]:
    """A matrix that turns the text of a page level: lines are longer than high, so their boxes show the angle."""
    total = 0j
    for outline in boxes:
        _, (first, second), degrees = cv2.minAreaRect(np.ascontiguousarray(outline))
        length, height = max(first, second), min(first, second)
        if length > _LONG * height:
            angle = np.deg2rad(degrees if first >= second else degrees + 90)
            # Twice the angle: a line has no beginning and no end.
            total += length * np.exp(2j * angle)
    angle = float(np.angle(total)) / 2 if total else 0.0
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])


# -- suspects

MIN_SCORE = 0.1
"""Suspects below it are not worth a look."""
COMMON = 0.02
"""From this share of the labels on, a kind of suspect is as likely a habit of the detector as an error."""
GOOD_FIT = 0.6
"""IoU of a label with a box from which it is where it should be."""
SAME_SIZE = 0.5
"""Share of a label's size that a box must have, and the other way round, to be the text that the label was drawn on."""
REACH = 1.5
"""How far a label can have been moved, in its heights, across the text; along it also by its length."""
MOVED = 0.15, 0.4
"""How far a label is from its text, in lengths along it and heights across it: up to the first it is careless, from the
second on wrong. An IoU of 0.5 is 0.33."""
SLIVER = 0.5
"""Unlabelled text that is lower, relative to the labels of the page, is a rim of labelled text."""


def find_suspects(given: PageInput, boxes: BoxesFromMap) -> list[Suspect]:
    """The suspects of one page, the most suspicious first; the page alone if its labels are elsewhere altogether."""
    page = MatchedPage(given, boxes, None)
    frame = find_frame(page)
    if frame is not None:
        return [frame]
    rules = _Rules(page)
    found = [*rules.duplicates(), *rules.labels(), *rules.missing()]
    return sorted((suspect for suspect in found if suspect.score >= MIN_SCORE), key=lambda one: -one.score)


def rank_suspects(suspects: Iterable[tuple[Place, Suspect]], labels: int) -> list[tuple[Place, Suspect]]:
    """Suspects of all pages, each with the place of its page, the most suspicious first.

    A kind that many labels are suspected of is trusted less: the detector might know other units than the labels.
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

    def __init__(self, page: MatchedPage) -> None:
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
                yield merged
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
        heights = [shape.height for shape in page.word_shapes or page.box_shapes]
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
        shape = self.page.word_shapes[word]
        empty = unlabelled_text(FalseBox(shape, texture, SURE_SCORE)) is None
        score = (0.6 if empty else 0.3) * (1 - probability)
        detail = f"the detector sees no text here ({probability:.2f})"
        return Suspect(UNSUPPORTED, score, f"{detail}, and there is hardly any print" if empty else detail, word,
                       self.outlines[word])  # fmt: skip


def _ratio(one: float, other: float) -> float:
    return min(one, other) / max(one, other, 1e-6)
