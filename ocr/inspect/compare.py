"""Two detectors on the same pages: which words were gained and lost, which false boxes are gone and new."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.evaluation.hmean import measure_overlaps
from ocr.geometry.kernels.overlap import read_rings
from ocr.geometry.polygons import Polygons
from ocr.inspect.inspection import Inspection, scores_of
from ocr.inspect.page import IOU
from ocr.inspect.result import FALSE, MISSED, PageResult
from ocr.report.numbers import in_points

RESAMPLED = 2000
"""Sets of pages that are drawn for the interval of the difference."""
INTERVAL = (2.5, 97.5)
SHOWN_PAGES = 5
CHANGES = {
    "gained": "words found that the baseline misses",
    "lost": "words missed that the baseline finds",
    "gone": "false boxes of the baseline that are gone",
    "new": "false boxes that the baseline does not have",
}


@dataclass(frozen=True, slots=True, eq=False)
class PageChange:
    """One page of both detectors: indices of its words, of the baseline's boxes and of the candidate's."""

    baseline: PageResult
    candidate: PageResult
    gained: NDArray[np.int64]
    lost: NDArray[np.int64]
    gone: NDArray[np.int64]
    """False boxes of the baseline that have no counterpart."""
    new: NDArray[np.int64]

    @property
    def points(self) -> float:
        """Of H-mean, in hundredths."""
        return 100 * (self.candidate.counts.hmean - self.baseline.counts.hmean)

    @property
    def any(self) -> bool:
        return any(len(getattr(self, change)) for change in CHANGES)

    def row(self) -> dict[str, Any]:
        """One row of the table of pages."""
        hmeans = {"hmean_baseline": self.baseline.counts.hmean, "hmean_candidate": self.candidate.counts.hmean}
        return {"page": self.candidate.name, **hmeans, **{name: len(getattr(self, name)) for name in CHANGES}}


@dataclass(eq=False)
class Comparison:
    """Two inspections of one set."""

    baseline: Inspection
    candidate: Inspection

    @cached_property
    def pages(self) -> list[PageChange]:
        """Pages that both were run on, the largest loss first."""
        earlier = {page.name: page for page in self.baseline.pages}
        both = [(earlier[page.name], page) for page in self.candidate.pages if page.name in earlier]
        return sorted((compare_page(*pair) for pair in both), key=lambda change: change.points)

    @property
    def points(self) -> float:
        """Difference of the H-mean, in hundredths."""
        return 100 * (self.candidate.counts.hmean - self.baseline.counts.hmean)

    def score_rows(self) -> list[tuple[str, str, str, str]]:
        """Score, baseline, candidate, difference in points."""
        rows = (
            ("H-mean at IoU 0.5", self.baseline.counts.hmean, self.candidate.counts.hmean),
            ("H-mean at IoU 0.7", self.baseline.tight.hmean, self.candidate.tight.hmean),
            ("CLEval H-mean", self.baseline.cleval[2], self.candidate.cleval[2]),
        )
        return [(name, f"{one:.4f}", f"{other:.4f}", in_points(100 * (other - one))) for name, one, other in rows]

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Of the difference in points, if other pages of the same kind had been drawn (bootstrap over pages, 95 %)."""
        both = [(page.baseline.counts, page.candidate.counts) for page in self.pages]
        counts = np.array([[(one.matched, one.boxes, one.words) for one in pair] for pair in both])
        if not len(counts):
            return 0.0, 0.0
        drawn = np.random.default_rng(0).integers(0, len(counts), (RESAMPLED, len(counts)))
        # Over pages: (sets, baseline or candidate, matched boxes words).
        matched, boxes, words = np.moveaxis(counts[drawn].sum(axis=1), -1, 0)
        hmeans = 2 * matched / np.maximum(boxes + words, 1)
        low, high = np.percentile(100 * (hmeans[:, 1] - hmeans[:, 0]), INTERVAL)
        return float(low), float(high)

    def causes_of(self, change: str) -> Counter[str]:
        """Causes of the words that were gained or lost, and of the false boxes that are gone or new."""
        source = "baseline" if change in ("gained", "gone") else "candidate"
        kind = MISSED if change in ("gained", "lost") else FALSE
        causes: Counter[str] = Counter()
        for page in self.pages:
            chosen = set(getattr(page, change).tolist())
            errors = getattr(page, source).errors
            causes.update(error.cause for error in errors if error.kind == kind and error.index in chosen)
        return causes

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return {
            "baseline": {"detector": self.baseline.detector, **scores_of(self.baseline.counts)},
            "candidate": {"detector": self.candidate.detector, **scores_of(self.candidate.counts)},
            "points": self.points,
            "interval": list(self.interval),
            "causes": {change: dict(self.causes_of(change)) for change in CHANGES},
            "pages": [change.row() for change in self.pages],
        }


def compare_page(baseline: PageResult, candidate: PageResult) -> PageChange:
    """What differs on one page."""
    gone, new = _false_boxes(baseline), _false_boxes(candidate)
    pairs = _same_boxes(_chosen(baseline, gone), _chosen(candidate, new))
    return PageChange(
        baseline,
        candidate,
        gained=np.flatnonzero(candidate.found & ~baseline.found),
        lost=np.flatnonzero(baseline.found & ~candidate.found),
        gone=np.delete(gone, pairs[:, 0]),
        new=np.delete(new, pairs[:, 1]),
    )


def show_comparison(comparison: Comparison, console: Console) -> None:
    """What got better and worse."""
    names = f"{comparison.baseline.detector} -> {comparison.candidate.detector}"
    table = Table(title=escape(names), title_justify="left")
    table.add_column("")
    for name in ("baseline", "candidate", "points"):
        table.add_column(name, justify="right")
    for row in comparison.score_rows():
        table.add_row(*row)
    console.print(table)
    low, high = map(in_points, comparison.interval)
    console.print(Text(f"other pages of the kind: {low} to {high} points (95 %, IoU 0.5)"), soft_wrap=True)
    for change, meaning in CHANGES.items():
        causes = comparison.causes_of(change)
        counts = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        console.print(Text(f"{causes.total()} {meaning}{': ' if counts else ''}{counts}"), soft_wrap=True)
    for page in [page for page in comparison.pages if page.points < 0][:SHOWN_PAGES]:
        console.print(Text(f"worse: {page.candidate.name} {in_points(page.points)} points"), soft_wrap=True)


def _false_boxes(page: PageResult) -> NDArray[np.int64]:
    return np.array([error.index for error in page.errors if error.kind == FALSE], dtype=np.int64)


def _chosen(page: PageResult, boxes: NDArray[np.int64]) -> Polygons:
    keep = np.zeros(len(page.detections), dtype=np.bool_)
    keep[boxes] = True
    return page.detections.polygons.select(keep)


def _same_boxes(baseline: Polygons, candidate: Polygons) -> NDArray[np.int64]:
    """(M, 2): which of the boxes are at the same place."""
    rings = read_rings(candidate, "candidate").in_float64(), read_rings(baseline, "baseline").in_float64()
    return measure_overlaps(*rings, np.zeros(len(baseline), dtype=np.bool_)).match(IOU)
