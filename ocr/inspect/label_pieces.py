"""Labels and boxes of a page along its text, and labels that hold several pieces of text."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.evaluation.hmean import measure_overlaps
from ocr.geometry.kernels.overlap import read_rings
from ocr.geometry.polygons import Polygons
from ocr.inspect.page import IOU, Candidates, JudgedPage

Outline = NDArray[np.float32]
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
        return self.candidates.found.scores

    def free_ious(self, word: int, min_score: float) -> NDArray[np.float64]:
        """IoU of a label with each box; -1 for boxes that another label has, or that have a lower score."""
        overlaps = self.candidates.overlaps
        ious = np.zeros(len(self.scores))
        mine = overlaps.gt == word
        ious[overlaps.det[mine]] = overlaps.iou[mine]
        taken = (self.owner >= 0) & (self.owner != word)
        ious[taken | overlaps.dropped | (self.scores < np.float32(min_score))] = -1
        return ious


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A label that holds several pieces of text."""

    score: float
    detail: str
    pieces: tuple[Outline, ...]


class TextLayout:
    """Bounds of labels and boxes with the text level, and how well each label fits a box."""

    def __init__(self, page: JudgedPage) -> None:
        self.page = page
        turn = _turn_level(page.found.polygons)
        self.words = page.given.truth.moved(turn).bounds
        own = page.settings.thresh
        self.levels = [
            Level(thresh, found, found.found.polygons.moved(turn).bounds, _owners(found))
            for thresh, found in page.candidates.items()
            if thresh >= own
        ]
        self.fit = np.zeros(len(self.words))
        for level in self.levels:
            pairs = level.candidates.overlaps
            enough = level.scores[pairs.det] >= MIN_PIECE
            np.maximum.at(self.fit, pairs.gt[enough], pairs.iou[enough])

    def outline(self, level: Level, box: int) -> Outline:
        """The rectangle around a box, on the page; labels are seldom finer."""
        polygons = level.candidates.found.polygons
        return _rectangle(polygons.vertices[slice(*polygons.offsets[box : box + 2])])

    def free_shares(self, boxes: Polygons, others: list[Outline]) -> NDArray[np.float64]:
        """Share of each box that is under none of the labels and others."""
        labels = self.page.given.truth.followed_by(Polygons.pack(others))
        rings = read_rings(labels, "labels").in_float64()
        pairs = measure_overlaps(read_rings(boxes, "boxes").in_float64(), rings, np.zeros(len(labels), dtype=np.bool_))
        covered = np.zeros(len(boxes))
        np.add.at(covered, pairs.det, pairs.shared)
        return np.clip(1 - covered / np.maximum(pairs.det_areas, 1e-6), 0, 1)


def find_merged(layout: TextLayout, word: int) -> Merged | None:
    """Rows above each other, or pieces of one row far apart; None if the label holds one piece of text."""
    best: Merged | None = None
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


def _rows_apart(layout: TextLayout, level: Level, word: int, pieces: NDArray[np.int64]) -> Merged | None:
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
    return Merged(score, f"{len(rows)} rows of text in one label", _hulls(layout, level, rows))


def _columns_apart(layout: TextLayout, level: Level, word: int, pieces: NDArray[np.int64]) -> Merged | None:
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
    return Merged(score, detail, _hulls(layout, level, sides))


def _hulls(layout: TextLayout, level: Level, groups: list[list[int]]) -> tuple[Outline, ...]:
    polygons = level.candidates.found.polygons
    outlines = list(polygons)
    return tuple(_rectangle(np.concatenate([outlines[box] for box in group])) for group in groups)


def _owners(found: Candidates) -> NDArray[np.int64]:
    """The label that each box matches best."""
    pairs, owner = found.overlaps, np.full(len(found.found), -1, dtype=np.int64)
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
