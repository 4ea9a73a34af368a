"""All pages of a set: scores, what each cause costs and what would help, scores by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.evaluation import CLEvalMetric
from ocr.evaluation.boxes import EXACT, BoxesFromMap
from ocr.evaluation.hmean import Counts
from ocr.inspect.causes import CAUSES, OTHER, SMALL_HEIGHT
from ocr.inspect.result import (
    FALSE,
    MISSED,
    Error,
    PageResult,
    ScoreBin,
    all_candidates,
    calibrate,
    cost_of_lowering,
    sum_curves,
)
from ocr.inspect.shapes import Shape
from ocr.pipeline.sample import STRIDE
from ocr.report.numbers import in_count, in_points, in_score


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
    def curves(self) -> dict[str, dict[float, Counts]]:
        return sum_curves(self.pages)

    @cached_property
    def candidates(self) -> NDArray[np.float64]:
        return all_candidates(self.pages)

    @cached_property
    def calibration(self) -> tuple[list[ScoreBin], float]:
        return calibrate(self.candidates)

    @cached_property
    def groups(self) -> list[Group]:
        return scores_by_group(self.pages)

    @cached_property
    def gains(self) -> list[Gain]:
        return rank_gains(self)

    @property
    def sentence(self) -> str:
        """The outcome, and the largest of the causes."""
        errors = f"{in_count(self.counts.missed)} words missed, {in_count(self.counts.false)} boxes false"
        sentence = f"H-mean {in_score(self.counts.hmean)}: {errors}"
        return f"{sentence}. The costliest cause: {self.gains[0].cause}" if self.gains else sentence

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
        words, false = cost_of_lowering(self.candidates, self.boxes.box_thresh, error.value)
        cost = f"lowered to {error.value:.3f}, it would find {words} words more and {false} false boxes"
        return replace(error, detail=f"{error.detail}; {cost}")

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
                name: [{"value": value} | scores_of(counts) for value, counts in curve.items()]
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
    cleval = dict(zip(("cleval_precision", "cleval_recall", "cleval_hmean"), page.cleval, strict=True))
    row = {"page": page.name, "width": page.size[0], "height": page.size[1], **scores_of(page.counts)}
    return row | {"missed": page.missed, "false": page.false, "hmean_70": page.tight.hmean, **cleval}


# -- gains

LISTED_PAGES = 3


@dataclass(frozen=True, slots=True)
class Gain:
    """One cause over all pages."""

    cause: str
    missed: int
    false: int
    points: float
    """Of H-mean, in hundredths, if none of them were made."""
    fix: str


def rank_gains(inspection: Inspection) -> list[Gain]:
    """Every cause that has errors, the largest gain first."""
    gains = []
    for cause in CAUSES:
        errors = [error for error in inspection.errors if error.cause == cause]
        if errors:
            missed, false = (sum(error.kind == kind for error in errors) for kind in (MISSED, FALSE))
            points = 100 * (without(inspection.counts, cause, missed, false).hmean - inspection.counts.hmean)
            fix = FIXES[cause]
            gains.append(Gain(cause, missed, false, points, fix if isinstance(fix, str) else fix(errors, inspection)))
    return sorted(gains, key=lambda gain: -gain.points)


def without(counts: Counts, cause: str, missed: int, false: int) -> Counts:
    """The counts without the errors of a cause.

    A word that stops being missed has a box of its own, and a false box is gone. If the label was wrong, text
    without a label becomes a word that is found, and two labels in one place become one.
    """
    if cause == "unlabelled text":
        return replace(counts, matched=counts.matched + false, words=counts.words + false)
    if cause == "labelled twice":
        return replace(counts, words=counts.words - missed, boxes=counts.boxes - false)
    return replace(counts, matched=counts.matched + missed, boxes=counts.boxes - false + missed)


def _larger_pages(errors: Sequence[Error], inspection: Inspection) -> str:
    height = float(np.percentile([error.height for error in errors], 25))
    if inspection.page_size is None or height <= 0:
        return "larger pages: transforms.size"
    wanted = -(-inspection.page_size * max(SMALL_HEIGHT / height, 1.1) // STRIDE) * STRIDE
    return f"larger pages: transforms.size={wanted:.0f} gives 3 of 4 of them {SMALL_HEIGHT:g} px; then train again"


def _other_threshold(errors: Sequence[Error], inspection: Inspection) -> str:
    parts = []
    for name in ("box_thresh", "thresh", "min_size", "max_candidates"):
        count = sum(error.setting == name for error in errors)
        if count and name in inspection.curves:
            parts.append(f"{count} under {name}: {_best_value(name, inspection)}")
        elif count:
            parts.append(f"{count} removed by boxes.{name}={getattr(inspection.boxes, name)}")
    return "; ".join(parts)


def _best_value(name: str, inspection: Inspection) -> str:
    """The best value of a threshold, as measured on these pages."""
    curve, configured = inspection.curves[name], getattr(inspection.boxes, name)
    baseline = curve[configured]
    value, best = max(curve.items(), key=lambda point: point[1].hmean)
    if best.hmean <= baseline.hmean:
        return f"no other value is better than {configured:g} here"
    words, false = best.matched - baseline.matched, best.false - baseline.false
    change = in_points(100 * (best.hmean - baseline.hmean))
    return f"boxes.{name}={value:g} finds {words:+d} words, with {false:+d} false boxes: {change} points"


def _merged(errors: Sequence[Error], inspection: Inspection) -> str:
    apart = sum(error.setting == "thresh" for error in errors)
    words = sum(error.kind == MISSED for error in errors)
    thresh = f"{apart} of {words} come apart at a higher boxes.thresh ({_best_value('thresh', inspection)})"
    ratio = inspection.boxes.shrink_ratio - 0.1
    return f"{thresh}; smaller kernels (targets.shrink_ratio={ratio:.1f}) or larger pages, trained again"


def _sizes(errors: Sequence[Error], inspection: Inspection) -> str:
    if inspection.boxes.unclip_ratio != EXACT:
        return f"boxes.unclip_ratio=exact in place of {inspection.boxes.unclip_ratio}; or glyphfeed test tune=true"
    near = sum(error.kind == MISSED and error.iou > 0.4 for error in errors)
    return f"{near} have an IoU over 0.4: larger pages or longer training; look whether the labels are tight"


def _relabel(errors: Sequence[Error], inspection: Inspection) -> str:
    pages = list(dict.fromkeys(error.page for error in errors))
    more = f" and {len(pages) - LISTED_PAGES} more pages" if len(pages) > LISTED_PAGES else ""
    return f"relabel these {len(errors)} words, on {', '.join(pages[:LISTED_PAGES])}{more}"


def _threshold_against(errors: Sequence[Error], inspection: Inspection) -> str:
    return f"train with such pages; {_best_value('box_thresh', inspection)}"


FIXES: Mapping[str, str | Callable[[Sequence[Error], Inspection], str]] = {
    "cut by the page": "scan with a margin, or mark text that is cut as ignored",
    "masked": "look at the ignored regions; for small text larger pages, or targets.min_text_size",
    "labelled twice": _relabel,
    "merged": _merged,
    "split": "label lines or words, not both; train with RandomScale; a lower boxes.thresh joins pieces",
    "under a threshold": _other_threshold,
    "low IoU": _sizes,
    "too small": _larger_pages,
    "faint": "more faint pages, and ColourJitter with more contrast",
    "unusual": "more pages with such text; QuarterTurn or RandomRotate for steep text",
    "one character": "more pages with lone characters, or larger pages",
    "duplicate": "a lower boxes.thresh joins them; look whether one word has two labels",
    "logo or code": "mark logos and codes as ignored, or train with more pages that have them",
    "rule or border": _threshold_against,
    "unlabelled text": _relabel,
    "noise": _threshold_against,
    "other": "look at them in the atlas",
}


# -- groups

ROOMS = ("top", "middle", "bottom"), ("left", "centre", "right")
MEGAPIXELS = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Group:
    """Words and boxes that have one property in common."""

    kind: str
    """What is grouped by: text height, aspect and so on."""
    name: str
    words: int
    recall: float | None
    """None if it has no words."""
    boxes: int
    precision: float | None
    """None if it has no boxes."""

    @property
    def hmean(self) -> float | None:
        if self.precision is None or self.recall is None:
            return None
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Property:
    """What words and boxes are grouped by: value and limits, or names of the groups in their order."""

    name: str
    value: Callable[[Shape], float]
    limits: Sequence[float]
    unit: str = ""
    names: Sequence[str] = ()

    def group_names(self) -> list[str]:
        return list(self.names) or interval_names(self.limits, self.unit)


PROPERTIES = (
    Property("text height", lambda shape: shape.height, (7, 9, 12, 16, 24, 32), " px"),
    Property("aspect", lambda shape: shape.aspect, (1.5, 3, 6, 12)),
    Property("angle", lambda shape: abs(shape.angle), (2, 10, 45), " degrees"),
    Property("contrast", lambda shape: shape.contrast, (45, 60, 80, 120, 160)),
    Property("height on page", lambda shape: shape.y, (1 / 3, 2 / 3), names=ROOMS[0]),
    Property("side of page", lambda shape: shape.x, (1 / 3, 2 / 3), names=ROOMS[1]),
)


def scores_by_group(pages: Sequence[PageResult]) -> list[Group]:
    """Recall by the look of the words, precision by the look of the boxes; groups without both are left out."""
    groups = []
    for rule in PROPERTIES:
        words = _count(((rule.value(word.shape), word.good) for page in pages for word in page.words), rule.limits)
        boxes = _count(((rule.value(box.shape), box.good) for page in pages for box in page.boxes), rule.limits)
        for name, (found, of_words), (right, of_boxes) in zip(rule.group_names(), words, boxes, strict=True):
            groups.append(Group(rule.name, name, of_words, _share(found, of_words), of_boxes, _share(right, of_boxes)))
    groups += _by_page_size(pages)
    return [group for group in groups if group.words or group.boxes]


def interval_names(limits: Sequence[float], unit: str = "") -> list[str]:
    """One name per interval between the limits.

    >>> interval_names([7, 9], " px")
    ['under 7 px', '7 to 9 px', '9 px and more']
    """
    between = [f"{low:g} to {high:g}{unit}" for low, high in pairwise(limits)]
    return [f"under {limits[0]:g}{unit}", *between, f"{limits[-1]:g}{unit} and more"]


def interval_of(value: float, limits: Sequence[float]) -> int:
    """Which of the intervals a value is in; a limit belongs to the interval above it."""
    return sum(value >= limit for limit in limits)


def _count(values: Iterable[tuple[float, bool]], limits: Sequence[float]) -> list[list[int]]:
    """Good ones and all, per interval."""
    counts = [[0, 0] for _ in range(len(limits) + 1)]
    for value, good in values:
        row = counts[interval_of(value, limits)]
        row[0] += good
        row[1] += 1
    return counts


def _by_page_size(pages: Sequence[PageResult]) -> list[Group]:
    sums = [Counts() for _ in range(len(MEGAPIXELS) + 1)]
    for page in pages:
        room = interval_of(page.size[0] * page.size[1] / 1e6, MEGAPIXELS)
        sums[room] += page.counts
    names = interval_names(MEGAPIXELS, " megapixels")
    return [
        Group("page size", name, c.words, _share(c.matched, c.words), c.boxes, _share(c.matched, c.boxes))
        for name, c in zip(names, sums, strict=True)
    ]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
