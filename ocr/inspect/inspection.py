"""An inspection: the results of all pages of a set, and everything that is summed over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ocr.evaluation import CLEvalMetric
from ocr.evaluation.boxes import BoxesFromMap
from ocr.evaluation.hmean import Counts
from ocr.inspect.causes import OTHER
from ocr.inspect.curves import Point, ScoreBin, all_candidates, calibrate, cost_of_lowering, sum_curves
from ocr.inspect.gains import Gain, Setup, rank_gains
from ocr.inspect.groups import Group, scores_by_group
from ocr.inspect.result import Error, PageResult


@dataclass(eq=False)
class Inspection:
    """What a detector does on a set of pages, and why it errs."""

    detector: str
    data: str
    pages: Sequence[PageResult]
    boxes: BoxesFromMap
    page_size: int | None = None
    """The letterbox's longest side."""

    @cached_property
    def counts(self) -> Counts:
        return sum((page.counts for page in self.pages), Counts())

    @cached_property
    def tight(self) -> Counts:
        return sum((page.tight for page in self.pages), Counts())

    @cached_property
    def cleval(self) -> tuple[float, float, float]:
        metric = CLEvalMetric()
        # Through update, so that compute knows that there is something; a page without words adds nothing.
        metric.update([], [])
        for page in self.pages:
            metric.sums += torch.from_numpy(page.cleval_sums)
        scores = metric.compute()
        return float(scores["det_p"]), float(scores["det_r"]), float(scores["det_h"])

    @cached_property
    def errors(self) -> list[Error]:
        """Of all pages; words under `box_thresh` with what it would cost to find them."""
        return [self._with_cost(error) for page in self.pages for error in page.errors]

    @cached_property
    def curves(self) -> dict[str, list[Point]]:
        return sum_curves(self.pages)

    @cached_property
    def calibration(self) -> tuple[list[ScoreBin], float]:
        return calibrate(all_candidates(self.pages))

    @cached_property
    def groups(self) -> list[Group]:
        return scores_by_group(self.pages)

    @cached_property
    def gains(self) -> list[Gain]:
        return rank_gains(self.errors, self.counts, Setup(self.boxes, self.page_size, self.curves))

    @property
    def explained(self) -> float:
        """Share of the errors that have a cause."""
        known = sum(error.cause != OTHER for error in self.errors)
        return known / len(self.errors) if self.errors else 1.0

    @cached_property
    def worst(self) -> list[PageResult]:
        """Pages, the lowest H-mean first; of equal ones that with more errors."""
        return sorted(self.pages, key=lambda page: (page.counts.hmean, -len(page.errors)))

    def _with_cost(self, error: Error) -> Error:
        if error.setting != "box_thresh" or error.value is None:
            return error
        words, false = cost_of_lowering(self._candidates, self.boxes.box_thresh, error.value)
        cost = f"lowered to {error.value:.3f}, it would find {words} words more and {false} false boxes"
        return replace(error, detail=f"{error.detail}; {cost}")

    @cached_property
    def _candidates(self) -> Any:
        return all_candidates(self.pages)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        bins, calibration_error = self.calibration
        return {
            "detector": self.detector,
            "data": self.data,
            "boxes": asdict(self.boxes),
            "page_size": self.page_size,
            "scores": {"iou_50": scores_of(self.counts), "iou_70": scores_of(self.tight)}
            | {"cleval": dict(zip(("precision", "recall", "hmean"), self.cleval, strict=True))},
            "explained": self.explained,
            "causes": [asdict(gain) for gain in self.gains],
            "groups": [asdict(group) | {"hmean": group.hmean} for group in self.groups],
            "curves": {
                name: [{"value": point.value} | scores_of(point.counts) for point in curve]
                for name, curve in self.curves.items()
            },
            "calibration": {"error": calibration_error, "bins": [asdict(item) for item in bins]},
            "pages": [page_row(page) for page in self.worst],
            "errors": [asdict(error) for error in self.errors],
        }


def scores_of(counts: Counts) -> dict[str, Any]:
    """Counts and the scores that follow from them."""
    scores = {"precision": counts.precision, "recall": counts.recall, "hmean": counts.hmean}
    return {**asdict(counts), **scores}


def page_row(page: PageResult) -> dict[str, Any]:
    """One row of the table of pages."""
    counts, (precision, recall, hmean) = page.counts, page.cleval
    return {
        "page": page.name,
        "width": page.size[0],
        "height": page.size[1],
        "words": counts.words,
        "boxes": counts.boxes,
        "matched": counts.matched,
        "missed": page.missed,
        "false": page.false,
        "precision": counts.precision,
        "recall": counts.recall,
        "hmean": counts.hmean,
        "hmean_70": page.tight.hmean,
        "cleval_precision": precision,
        "cleval_recall": recall,
        "cleval_hmean": hmean,
    }
