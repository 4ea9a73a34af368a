"""The order in which the lines of a page are read, each with its words: columns, then lines, then words.

Columns of running text are read one after the other, the cells of a table row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]
Outline = NDArray[np.float32]

MIN_GAP = 0.5
"""Of a column gap, in heights of a line."""
ALIGNED = 0.6
"""From this share of lines on that have a neighbour on their own height, two columns can belong to a table."""
FULL = 0.7
"""Of the width of a column is what its usual row takes in running text."""
RUNNING = 6.0
"""Heights of a line that the usual row of running text is wide; columns of numbers are narrower."""
RUNNING_LINES = 3
NEAR = 0.2
"""Radians from the usual angle, within which lines count for the skew of a page."""


class ReadLine(NamedTuple):
    """A line and its words, by their numbers, from left to right."""

    line: int
    words: list[int]


def reading_order(lines: Sequence[ArrayLike], words: Sequence[ArrayLike] = ()) -> list[ReadLine]:
    """The lines of a page in the order in which they are read; a word that is in no line is left out.

    >>> left, right = [[0, 0], [9, 0], [9, 2], [0, 2]], [[20, 0], [29, 0], [29, 2], [20, 2]]
    >>> below = [[0, 5], [9, 5], [9, 7], [0, 7]]
    >>> reading_order([below, right, left], [left, below])
    [ReadLine(line=2, words=[0]), ReadLine(line=1, words=[]), ReadLine(line=0, words=[1])]
    """
    outlines = [_outline(line) for line in lines]
    if not outlines:
        return []
    turn = _upright(outlines)
    of_words = [_outline(word) for word in words]
    held = _words_of_lines(outlines, of_words)
    starts = [float((word @ turn)[:, 0].mean()) for word in of_words]
    order = _Lines.of(_straightened([outline @ turn for outline in outlines])).order(np.arange(len(outlines)))
    return [ReadLine(line, sorted(held[line], key=starts.__getitem__)) for line in order]


def _outline(points: ArrayLike) -> Outline:
    return np.asarray(points, dtype=np.float32).reshape(-1, 2)


def _upright(outlines: Sequence[Outline]) -> NDArray[np.float32]:
    """The matrix that turns the usual line level."""
    angles, weights = [], []
    for outline in outlines:
        centred = outline - outline.mean(axis=0)
        (longer, shorter), axes = np.linalg.svd(centred, full_matrices=False)[1:]
        if longer > 3 * shorter:
            along = axes[0] if axes[0][0] >= 0 else -axes[0]
            angles.append(float(np.arctan2(along[1], along[0])))
            weights.append(float(longer))
    if not angles:
        return np.eye(2, dtype=np.float32)
    found, weight = np.array(angles), np.array(weights)
    ranked = np.argsort(found)
    median = found[ranked[np.searchsorted(np.cumsum(weight[ranked]), weight.sum() / 2)]]
    # The mean of those near it: the halves of a bent line cancel.
    near = np.abs(found - median) < NEAR
    angle = float(np.average(found[near], weights=weight[near]))
    if abs(angle) > np.pi / 4:
        return np.eye(2, dtype=np.float32)  # The page lies on its side.
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine], [sine, cosine]], dtype=np.float32)


def _straightened(outlines: Sequence[Outline]) -> list[Outline]:
    """Lines of a page whose bend, the same for all, is taken out: their slope is fitted as a function of the place."""
    size = max(float(np.ptp(np.concatenate(outlines), axis=0).max()), 1e-3)
    rows, slopes = [], []
    for outline in outlines:
        left, right = float(outline[:, 0].min()), float(outline[:, 0].max())
        if right - left < 3 * np.ptp(outline[:, 1]) and len(outline) == 4:
            continue
        at = np.linspace(left, right, 2 * (2 if len(outline) == 4 else 5) + 1)[1::2]
        middle = np.array([_height_at(outline, x) for x in at])
        for x, y, step, rise in zip(at, middle, np.diff(at), np.diff(middle), strict=False):
            weight = float(np.sqrt(step / size))
            rows.append(weight * _slope_terms((x + step / 2) / size, (y + rise / 2) / size))
            slopes.append(weight * rise / step if step > 0 else 0.0)
    # A little ridge: a page with few lines is taken as it is.
    system = np.concatenate([np.array(rows).reshape(-1, 4), 0.02 * np.eye(4)])
    bend = np.linalg.lstsq(system, np.array([*slopes, 0, 0, 0, 0]), rcond=None)[0]
    if not np.isfinite(bend).all() or np.abs(bend).max() > 1:
        return list(outlines)
    straight = []
    for outline in outlines:
        x, y = (outline / size).T
        rise = bend[0] * x + bend[1] * x**2 / 2 + bend[2] * x**3 / 3 + bend[3] * x * y
        straight.append((outline - np.column_stack([np.zeros(len(x)), size * rise])).astype(np.float32))
    return straight


def _slope_terms(x: float, y: float) -> NDArray[np.float64]:
    return np.array([1.0, x, x * x, y])


def _height_at(outline: Outline, x: float) -> float:
    """Where the middle of a line passes at x: between the crossings of its outline."""
    following = np.roll(outline, -1, axis=0)
    crosses = (outline[:, 0] <= x) != (following[:, 0] <= x)
    (ax, ay), (bx, by) = outline[crosses].T.astype(np.float64), following[crosses].T.astype(np.float64)
    crossings = ay + (x - ax) * (by - ay) / (bx - ax)
    return float(crossings.mean()) if len(crossings) else float(outline[:, 1].mean())


def _words_of_lines(lines: Sequence[Outline], words: Sequence[Outline]) -> list[list[int]]:
    """The words of each line: those whose middle it holds, or else the line that holds most of their corners."""
    held: list[list[int]] = [[] for _ in lines]
    low, high = (np.array([pick(line, axis=0) for line in lines]) for pick in (np.min, np.max))
    for number, word in enumerate(words):
        middle = (word.min(axis=0) + word.max(axis=0)) / 2
        near = np.flatnonzero((low <= word.max(axis=0)).all(axis=1) & (high >= word.min(axis=0)).all(axis=1))
        depths = [cv2.pointPolygonTest(lines[line], middle.tolist(), True) for line in near.tolist()]
        # A little outside is enough: boxes of words are often higher than the line.
        if depths and max(depths) > -0.25 * float(np.ptp(word[:, 1])):
            held[int(near[int(np.argmax(depths))])].append(number)
    return held


@dataclass(frozen=True, eq=False)
class _Lines:
    """Level lines of a page, as boxes and middle lines."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    top: NDArray[np.float64]
    """Of the core of a line, without its ascenders."""
    bottom: NDArray[np.float64]
    height: NDArray[np.float64]
    outlines: Sequence[Outline]

    @classmethod
    def of(cls, outlines: Sequence[Outline]) -> _Lines:
        low, high = (np.array([pick(outline, axis=0) for outline in outlines], np.float64) for pick in (np.min, np.max))
        width = np.maximum(high[:, 0] - low[:, 0], 1e-3)
        areas = np.array([cv2.contourArea(outline) for outline in outlines])
        height = np.clip(areas / width, 1e-3, np.maximum(high[:, 1] - low[:, 1], 1e-3))
        core = 0.25 * height
        return cls(low[:, 0], high[:, 0], low[:, 1] + core, high[:, 1] - core, height, outlines)

    def order(self, these: Indices) -> list[int]:
        """Lines in the order of reading."""
        if len(these) < 2:
            return [int(line) for line in these]
        parts = self._columns(these)
        if parts is None:
            parts = self._sections(these) if not self._gaps(these) else self._rows(these)
        if len(parts) == 1:
            return self._from_top(these)
        return [line for part in parts for line in self.order(part)]

    def _gaps(self, these: Indices) -> list[tuple[float, float]]:
        """The vertical strips without text between these lines, widest first."""
        least = MIN_GAP * float(np.median(self.height[these]))
        gaps = _free(self.left[these], self.right[these], least)
        return sorted(gaps, key=lambda gap: gap[0] - gap[1])

    def _columns(self, these: Indices) -> list[Indices] | None:
        """What is left and right of a gap between columns; None if there is none."""
        for gap in self._gaps(these):
            is_left = self.right[these] <= gap[0]
            sides = these[is_left], these[~is_left]
            if not self._is_aligned(*sides) or all(self._is_running(side) for side in sides):
                return list(sides)
        return None

    def _is_aligned(self, left: Indices, right: Indices) -> bool:
        """Whether the lines of two columns stand next to each other, as cells do."""
        few, many = sorted((left, right), key=len)
        middle = (self.top + self.bottom) / 2
        apart = np.abs(middle[few][:, None] - middle[many][None]).min(axis=1)
        return float((apart < 0.4 * self.height[few]).mean()) >= ALIGNED

    def _is_running(self, these: Indices) -> bool:
        """Whether most lines are running text: wide, and as wide as their column."""
        parts = self._groups(these)
        if len(parts) > 1:
            return all(self._is_running(part) for part in parts)
        parts = self._sections(these)
        if len(parts) > 1:
            return sum(len(part) for part in parts if self._is_running(part)) >= FULL * len(these)
        widths = self.right[these] - self.left[these]
        column = self.right[these].max() - self.left[these].min()
        least = max(RUNNING * float(np.median(self.height[these])), FULL * column)
        return len(these) >= RUNNING_LINES and float(np.median(widths)) >= least

    def _groups(self, these: Indices) -> list[Indices]:
        """Lines parted by all gaps between columns, from left to right."""
        cuts = sorted((low + high) / 2 for low, high in self._gaps(these))
        number = np.searchsorted(cuts, self.left[these])
        return [these[number == group] for group in range(len(cuts) + 1)]

    def _rows(self, these: Indices) -> list[Indices]:
        """Lines cut where nothing is on the whole width, from top to bottom."""
        cuts = [(low + high) / 2 for low, high in _free(self.top[these], self.bottom[these], 0)]
        number = np.searchsorted(cuts, self.top[these])
        rows: list[Indices] = []
        middle, usual = (self.top + self.bottom) / 2, float(np.median(self.height[these]))
        for row in (these[number == row] for row in range(len(cuts) + 1)):
            # Lines of two columns can stand in turns; lines of one column are further apart.
            near = bool(rows) and middle[row].min() - middle[rows[-1]].max() < 0.9 * usual
            if near and self._has_gap(rows[-1], row):
                rows[-1] = np.concatenate([rows[-1], row])
            else:
                rows.append(row)
        return rows

    def _has_gap(self, *rows: Indices) -> bool:
        return bool(self._gaps(np.concatenate(rows)))

    def _sections(self, these: Indices) -> list[Indices]:
        """Rows joined as long as they share a gap between columns, or have none."""
        sections: list[list[Indices]] = []
        for row in self._rows(these):
            before = sections[-1] if sections else []
            # A row of several columns under one without: a new section, though they share no gap either.
            has_gaps = bool(before) and self._has_gap(*before)
            if before and self._has_gap(*before, row) == has_gaps and (has_gaps or not self._has_gap(row)):
                before.append(row)
            else:
                sections.append([row])
        for above, below in pairwise(sections):
            # The first line of a column can stand above the first lines of other columns.
            while (
                len(above) > 1
                and not self._has_gap(*above)
                and self._has_gap(*below)
                and self._has_gap(above[-1], *below)
            ):
                below.insert(0, above.pop())
        return [np.concatenate(section) for section in sections]

    def _from_top(self, these: Indices) -> list[int]:
        """Lines that no straight cut parts: of two, first the one above, or of two on one height the left one."""
        left, right, middle = self.left[these], self.right[these], (self.top[these] + self.bottom[these]) / 2
        shared = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
        is_over = shared > 0.1 * np.minimum(right - left, (right - left)[:, None])
        is_level = (self.top[these][:, None] < self.bottom[these]) & (self.top[these] < self.bottom[these][:, None])
        before = np.where(is_over, middle[:, None] < middle, is_level & (left[:, None] < left))
        for a, b in zip(*np.nonzero(np.triu(is_over & is_level, 1)), strict=True):
            at = (max(left[a], left[b]) + min(right[a], right[b])) / 2
            before[a, b] = _height_at(self.outlines[these[a]], at) < _height_at(self.outlines[these[b]], at)
            before[b, a] = not before[a, b]
        found: list[int] = []
        waiting = np.ones(len(these), dtype=np.bool_)
        while waiting.any():
            blockers = (before & waiting[:, None]).sum(axis=0)
            ready = np.flatnonzero(waiting & (blockers == blockers[waiting].min()))
            first = ready[np.lexsort((left[ready], middle[ready]))[0]]
            waiting[first] = False
            found.append(int(these[first]))
        return found


def _free(low: NDArray[np.float64], high: NDArray[np.float64], least: float) -> list[tuple[float, float]]:
    """The gaps, wider than `least`, between intervals."""
    order = np.argsort(low, kind="stable")
    reached = np.maximum.accumulate(high[order])[:-1]
    starts = low[order][1:]
    is_gap = starts - reached > least
    return list(zip(reached[is_gap].tolist(), starts[is_gap].tolist(), strict=True))
