"""More text on a page than it came with: lines of the page, copied to where it has none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.checks import Range
from ocr.geometry.polygons import UNITS, Polygons
from ocr.pipeline.sample import PageView, Sample
from ocr.pipeline.stage import Probabilistic


class Copies(NamedTuple):
    """Which polygons are copied, and by how many whole pixels each copy is moved."""

    sources: NDArray[np.int64]
    """(N,)"""
    shifts_xy: NDArray[np.int64]
    """(N, 2)"""


@dataclass(frozen=True, slots=True)
class CopyPasteLines(Probabilistic):
    """Copy up to `lines` words or lines to free paper of the same page, and their polygons with them.

    Free is what no polygon comes near, between the first and the last text of the page: beyond it may be a table, or
    padding. Put it in front of stages that turn the page. Text marked ignore is not copied.
    """

    lines: int = 8
    p: float = 0.3
    tries: int = 10
    follows_matrix: ClassVar[bool] = False
    ranges: ClassVar = {"lines": Range(1, whole=True), "tries": Range(1, whole=True)}

    def choose(self, rng: np.random.Generator, page: PageView) -> Copies | None:
        """Lines and places for them; None if the page has none."""
        bounds = page.polygons.bounds.astype(np.float64)
        on_page = (bounds[:, :2] >= 0).all(axis=1) & (bounds[:, 2:] <= (page.width - 1, page.height - 1)).all(axis=1)
        # Of a page that is labelled in lines and words, lines are copied, and their words with them.
        is_whole = page.polygons.units == page.polygons.units.min(initial=len(UNITS))
        candidates = np.flatnonzero(on_page & ~page.polygons.ignore & is_whole)
        if not len(candidates):
            return None
        paper = np.concatenate([bounds[candidates, :2].min(axis=0), bounds[candidates, 2:].max(axis=0)])
        found: list[tuple[int, NDArray[np.int64]]] = []
        for source in rng.choice(candidates, int(rng.integers(1, self.lines + 1))):
            shift = self._free_shift(rng, bounds[source], bounds, paper)
            if shift is not None:
                found.append((int(source), shift))
                bounds = np.concatenate([bounds, (bounds[source] + np.tile(shift, 2))[None]])
        if not found:
            return None
        sources, shifts = zip(*found, strict=True)
        return Copies(np.array(sources), np.array(shifts))

    def _free_shift(
        self,
        rng: np.random.Generator,
        line: NDArray[np.float64],
        taken: NDArray[np.float64],
        paper: NDArray[np.float64],
    ) -> NDArray[np.int64] | None:
        # As far from other text as half of the line is high, so that lines do not become one.
        margin = (line[3] - line[1]) / 2
        low, high = np.ceil(paper[:2] - line[:2]), np.floor(paper[2:] - line[2:])
        for _ in range(self.tries):
            shift = np.floor(rng.uniform(low, high + 1))
            left, top = line[:2] + shift - margin
            right, bottom = line[2:] + shift + margin
            is_near = (taken[:, 0] < right) & (taken[:, 2] > left) & (taken[:, 1] < bottom) & (taken[:, 3] > top)
            if not is_near.any():
                return shift.astype(np.int64)
        return None

    def apply(self, sample: Sample, parameters: Copies) -> Sample:
        image, outlines = sample.image.copy(), list(sample.polygons)
        for source, shift in zip(*parameters, strict=True):
            _paste(sample.image, image, outlines[source], shift)
        polygons = sample.polygons.followed_by(_moved(sample.polygons, parameters))
        return replace(sample, image=image, polygons=polygons, maps=None)


def _moved(polygons: Polygons, copies: Copies) -> Polygons:
    outlines = list(polygons)
    pairs = [(at, shift) for source, shift in zip(*copies, strict=True) for at in _with_its_words(polygons, source)]
    sources = [at for at, _ in pairs]
    moved = [outlines[at] + shift for at, shift in pairs]
    texts = [polygons.texts[at] for at in sources]
    return Polygons.pack(moved, polygons.ignore[sources], texts, polygons.units[sources])


def _with_its_words(polygons: Polygons, line: int) -> list[int]:
    """A polygon, and if it is a line, the words whose middle is inside."""
    if polygons.units[line] != 1:
        return [line]
    outlines = list(polygons)
    words = np.flatnonzero(polygons.units == 2)
    inside = [cv2.pointPolygonTest(outlines[line], outlines[at].mean(axis=0).tolist(), False) >= 0 for at in words]
    return [line, *words[np.array(inside, dtype=np.bool_)].tolist()]


def _paste(page: NDArray[Any], image: NDArray[Any], outline: NDArray[np.float32], shift: NDArray[np.int64]) -> None:
    """Print the inside of an outline of `page` on `image`, moved by `shift`."""
    left, top = np.floor(outline.min(axis=0)).astype(int)
    right, bottom = np.ceil(outline.max(axis=0)).astype(int) + 1
    line = page[top:bottom, left:right].astype(np.float32)
    inside = np.zeros(line.shape[:2], np.uint8)
    cv2.fillPoly(inside, [np.rint(outline - (left, top)).astype(np.int32)], 1)
    there = image[top + shift[1] : bottom + shift[1], left + shift[0] : right + shift[0]]
    change = _ink(line, float(np.median(there))) * inside[:, :, None]
    there[:] = np.rint((there + change).clip(0, 255)) if image.dtype == np.uint8 else there + change


def _ink(line: NDArray[np.float32], paper: float) -> NDArray[np.float32]:
    """How much darker than its paper a line is, or lighter if its paper is dark: added elsewhere, no patch shows."""
    dark, light = np.percentile(line, (20, 80), axis=(0, 1))
    # Of the two levels of a line, that of its paper is nearer to the level of the paper that it goes to.
    is_light = abs(light.mean() - paper) <= abs(dark.mean() - paper)
    ink: NDArray[np.float32] = np.minimum(line - light, 0) if is_light else np.maximum(line - dark, 0)
    return ink
