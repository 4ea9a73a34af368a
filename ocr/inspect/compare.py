"""Two detectors on the same pages: which words were gained and lost, which false boxes are gone and new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.evaluation.hmean import Counts, measure_overlaps
from ocr.geometry.kernels.overlap import read_rings
from ocr.geometry.polygons import Polygons
from ocr.inspect.inspection import Inspection, scores_of
from ocr.inspect.page import IOU
from ocr.inspect.result import FALSE, MISSED, Error, PageResult

RESAMPLED = 2000
"""Sets of pages that are drawn for the interval of the difference."""
INTERVAL = (2.5, 97.5)
SHOWN_PAGES = 5


@dataclass(frozen=True, slots=True, eq=False)
class PageChange:
    """One page before and after: indices of its words, of boxes before and of boxes after."""

    before: PageResult
    after: PageResult
    gained: NDArray[np.int64]
    lost: NDArray[np.int64]
    gone: NDArray[np.int64]
    """False boxes of before that have no counterpart."""
    new: NDArray[np.int64]

    @property
    def points(self) -> float:
        """Of H-mean, in hundredths."""
        return 100 * (self.after.counts.hmean - self.before.counts.hmean)

    @property
    def any(self) -> bool:
        return bool(len(self.gained) + len(self.lost) + len(self.gone) + len(self.new))

    def row(self) -> dict[str, Any]:
        """One row of the table of pages."""
        changes = {name: len(getattr(self, name)) for name in ("gained", "lost", "gone", "new")}
        scores = {"hmean_before": self.before.counts.hmean, "hmean_after": self.after.counts.hmean}
        return {"page": self.after.name, **scores, **changes}


@dataclass(eq=False)
class Comparison:
    """Two inspections of one set."""

    before: Inspection
    after: Inspection

    @cached_property
    def pages(self) -> list[PageChange]:
        """Pages that both have judged, the largest loss first."""
        earlier = {page.name: page for page in self.before.pages}
        both = [(earlier[page.name], page) for page in self.after.pages if page.name in earlier]
        return sorted((compare_page(*pair) for pair in both), key=lambda change: change.points)

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """Of the difference in points, if other pages of the same kind had been drawn (bootstrap over pages, 95 %)."""
        counts = np.array([[_numbers(page.before.counts), _numbers(page.after.counts)] for page in self.pages])
        if not len(counts):
            return 0.0, 0.0
        drawn = np.random.default_rng(seed).integers(0, len(counts), (RESAMPLED, len(counts)))
        # Over pages: (sets, before or after, matched boxes words).
        matched, boxes, words = np.moveaxis(counts[drawn].sum(axis=1), -1, 0)
        hmeans = 2 * matched / np.maximum(boxes + words, 1)
        low, high = np.percentile(100 * (hmeans[:, 1] - hmeans[:, 0]), INTERVAL)
        return float(low), float(high)

    def causes_of(self, kind: str) -> Counter[str]:
        """Causes of the words that were gained or lost, and of the false boxes that are gone or new."""
        source = "before" if kind in ("gained", "gone") else "after"
        error_kind = MISSED if kind in ("gained", "lost") else FALSE
        found: Counter[str] = Counter()
        for change in self.pages:
            chosen = set(getattr(change, kind).tolist())
            errors: Sequence[Error] = getattr(change, source).errors
            found.update(error.cause for error in errors if error.kind == error_kind and error.index in chosen)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        low, high = self.interval()
        return {
            "before": {"detector": self.before.detector, **scores_of(self.before.counts)},
            "after": {"detector": self.after.detector, **scores_of(self.after.counts)},
            "points": 100 * (self.after.counts.hmean - self.before.counts.hmean),
            "interval": [low, high],
            "causes": {kind: dict(self.causes_of(kind)) for kind in ("gained", "lost", "gone", "new")},
            "pages": [change.row() for change in self.pages],
        }


def compare_page(before: PageResult, after: PageResult) -> PageChange:
    """What changed on one page."""
    false_before, false_after = _false_boxes(before), _false_boxes(after)
    pairs = _same_boxes(_chosen(before, false_before), _chosen(after, false_after))
    return PageChange(
        before,
        after,
        gained=np.flatnonzero(after.found & ~before.found),
        lost=np.flatnonzero(before.found & ~after.found),
        gone=np.delete(false_before, pairs[:, 0]),
        new=np.delete(false_after, pairs[:, 1]),
    )


def show_comparison(comparison: Comparison, console: Console) -> None:
    """What got better and worse."""
    before, after = comparison.before, comparison.after
    table = Table(title=escape(f"{before.detector} -> {after.detector}"), title_justify="left")
    table.add_column("")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right")
    for name, one, other in (
        ("H-mean at IoU 0.5", before.counts.hmean, after.counts.hmean),
        ("H-mean at IoU 0.7", before.tight.hmean, after.tight.hmean),
        ("CLEval H-mean", before.cleval[2], after.cleval[2]),
    ):
        table.add_row(name, f"{one:.4f}", f"{other:.4f}", f"{100 * (other - one):+.2f} points")
    console.print(table)
    low, high = comparison.interval()
    console.print(Text(f"other pages of the kind: {low:+.2f} to {high:+.2f} points (95 %, IoU 0.5)"), soft_wrap=True)
    for kind, what in (
        ("gained", "words found now"),
        ("lost", "words no longer found"),
        ("gone", "false boxes gone"),
        ("new", "new false boxes"),
    ):
        causes = comparison.causes_of(kind)
        told = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        console.print(Text(f"{causes.total()} {what}{': ' if told else ''}{told}"), soft_wrap=True)
    for change in [change for change in comparison.pages if change.points < 0][:SHOWN_PAGES]:
        console.print(Text(f"worse: {change.after.name} {change.points:+.1f} points"), soft_wrap=True)


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.matched, counts.boxes, counts.words


def _false_boxes(page: PageResult) -> NDArray[np.int64]:
    return np.array([error.index for error in page.errors if error.kind == FALSE], dtype=np.int64)


def _chosen(page: PageResult, boxes: NDArray[np.int64]) -> Polygons:
    keep = np.zeros(len(page.detections), dtype=np.bool_)
    keep[boxes] = True
    return page.detections.polygons.select(keep)


def _same_boxes(before: Polygons, after: Polygons) -> NDArray[np.int64]:
    """(M, 2): which of the boxes are at the same place."""
    rings = read_rings(after, "after").in_float64(), read_rings(before, "before").in_float64()
    return measure_overlaps(*rings, np.zeros(len(before), dtype=np.bool_)).match(IOU)
