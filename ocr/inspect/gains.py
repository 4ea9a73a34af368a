"""What would help: the H-mean if the errors of one cause were cured, and the setting or the data that cures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ocr.evaluation.boxes import EXACT, BoxesFromMap
from ocr.evaluation.hmean import Counts
from ocr.inspect.causes import CAUSES, SMALL_HEIGHT
from ocr.inspect.curves import Point, best_point
from ocr.inspect.result import FALSE, MISSED, Error
from ocr.pipeline.sample import STRIDE

LISTED_PAGES = 3


@dataclass(frozen=True, slots=True)
class Gain:
    """One cause over all pages."""

    cause: str
    missed: int
    false: int
    points: float
    """Of H-mean, in hundredths, if all of them were cured."""
    cure: str


@dataclass(frozen=True, slots=True)
class Setup:
    """What cures refer to."""

    boxes: BoxesFromMap
    page_size: int | None
    curves: Mapping[str, Sequence[Point]]


def rank_gains(errors: Sequence[Error], counts: Counts, setup: Setup) -> list[Gain]:
    """Every cause that has errors, the largest gain first."""
    gains = []
    for cause in CAUSES:
        own = [error for error in errors if error.cause == cause]
        if own:
            missed, false = (sum(error.kind == kind for error in own) for kind in (MISSED, FALSE))
            points = 100 * (cured(counts, cause, missed, false).hmean - counts.hmean)
            gains.append(Gain(cause, missed, false, points, CURES[cause](own, setup)))
    return sorted(gains, key=lambda gain: -gain.points)


def cured(counts: Counts, cause: str, missed: int, false: int) -> Counts:
    """The counts if the errors of a cause had not been made.

    A word that is no longer missed has a box of its own, and a false box is gone. If the label was wrong, text that
    nobody labelled becomes a word that is found, and a label that is twice there becomes one.
    """
    if cause == "unlabelled text":
        return replace(counts, matched=counts.matched + false, words=counts.words + false)
    if cause == "labelled twice":
        return replace(counts, words=counts.words - missed, boxes=counts.boxes - false)
    return replace(counts, matched=counts.matched + missed, boxes=counts.boxes - false + missed)


def _larger_pages(errors: Sequence[Error], setup: Setup) -> str:
    height = float(np.percentile([error.height for error in errors], 25))
    if setup.page_size is None or height <= 0:
        return "larger pages: transforms.size"
    wanted = -(-setup.page_size * max(SMALL_HEIGHT / height, 1.1) // STRIDE) * STRIDE
    return f"larger pages: transforms.size={wanted:.0f} gives 3 of 4 of them {SMALL_HEIGHT:g} px; then train again"


def _other_threshold(errors: Sequence[Error], setup: Setup) -> str:
    parts = []
    for name in ("box_thresh", "thresh"):
        count = sum(error.setting == name for error in errors)
        if count:
            parts.append(f"{count} under {name}: {_best_value(name, setup)}")
    for name in ("min_size", "max_candidates"):
        count = sum(error.setting == name for error in errors)
        if count:
            parts.append(f"{count} removed by boxes.{name}={getattr(setup.boxes, name)}")
    return "; ".join(parts)


def _best_value(name: str, setup: Setup) -> str:
    """The best value of a threshold, as measured on these pages."""
    curve, own = setup.curves[name], getattr(setup.boxes, name)
    now = next(point.counts for point in curve if point.value == own)
    best = best_point(curve)
    if best.counts.hmean <= now.hmean:
        return f"no other value is better than {own:g} here"
    change = 100 * (best.counts.hmean - now.hmean)
    return (
        f"boxes.{name}={best.value:g} finds {best.counts.matched - now.matched:+d} words, with "
        f"{(best.counts.boxes - best.counts.matched) - (now.boxes - now.matched):+d} false boxes: {change:+.2f} points"
    )


def _merged(errors: Sequence[Error], setup: Setup) -> str:
    apart = sum(error.setting == "thresh" for error in errors)
    words = sum(error.kind == MISSED for error in errors)
    ratio = (
        f"smaller kernels (targets.shrink_ratio={setup.boxes.shrink_ratio - 0.1:.1f}) or larger pages, trained again"
    )
    return f"{apart} of {words} come apart at a higher boxes.thresh ({_best_value('thresh', setup)}); {ratio}"


def _sizes(errors: Sequence[Error], setup: Setup) -> str:
    if setup.boxes.unclip_ratio != EXACT:
        return f"boxes.unclip_ratio=exact in place of {setup.boxes.unclip_ratio}; or ocr sweep"
    near = sum(error.kind == MISSED and error.iou > 0.4 for error in errors)
    return f"{near} have an IoU over 0.4: larger pages or longer training; look whether the labels are tight"


def _relabel(errors: Sequence[Error], setup: Setup) -> str:
    pages = list(dict.fromkeys(error.page for error in errors))
    more = f" and {len(pages) - LISTED_PAGES} more pages" if len(pages) > LISTED_PAGES else ""
    return f"relabel these {len(errors)} words, on {', '.join(pages[:LISTED_PAGES])}{more}"


def _threshold_against(errors: Sequence[Error], setup: Setup) -> str:
    return f"train with such pages; {_best_value('box_thresh', setup)}"


def _say(text: str) -> Callable[[Sequence[Error], Setup], str]:
    return lambda errors, setup: text


CURES: Mapping[str, Callable[[Sequence[Error], Setup], str]] = {
    "cut by the page": _say("scan with a margin, or mark text that is cut as ignored"),
    "masked": _say("look at the ignored regions; for small text larger pages, or targets.min_text_size"),
    "labelled twice": _relabel,
    "merged": _merged,
    "split": _say("label lines or words, not both; train with RandomScale; a lower boxes.thresh joins pieces"),
    "under a threshold": _other_threshold,
    "badly sized": _sizes,
    "too small": _larger_pages,
    "faint": _say("more faint pages, and ColourJitter with more contrast"),
    "unusual": _say("more pages with such text; QuarterTurn or RandomRotate for steep text"),
    "one character": _say("more pages with lone characters, or larger pages"),
    "duplicate": _say("a lower boxes.thresh joins them; look whether one word has two labels"),
    "logo or code": _say("mark logos and codes as ignored, or train with more pages that have them"),
    "rule or border": _threshold_against,
    "unlabelled text": _relabel,
    "noise": _threshold_against,
    "other": _say("look at them in the atlas"),
}
