"""Which pages to label next: those that the detector is unsure of, and that are unlike each other and the labelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.inspect.page_look import FEATURES, PageLook

Vectors = NDArray[np.float32]
LIMIT = 3.0
"""Spreads from the median at which a feature is cut off: one strange number must not decide alone."""
TOLD = 1.0
"""Spreads from the usual page from which a feature is told."""
MAX_TOLD = 2


@dataclass(frozen=True, slots=True, eq=False)
class RankedPage:
    """A page in the order of the choice."""

    look: PageLook
    chosen: bool
    score: float
    """`unsure` times `unlike`: what the choice is made by."""
    unsure: float
    """As in the look; the median of all pages if it is unknown."""
    unlike: float
    """Distance to the nearest page that is labelled or chosen before, 1 for two pages at random; 1 if there is none."""
    nearest: str | None
    reason: str

    def row(self, rank: int) -> dict[str, Any]:
        """As plain JSON types."""
        return {
            "rank": rank,
            "page": self.look.name,
            "chosen": self.chosen,
            "score": self.score,
            "unsure": self.unsure,
            "unlike": self.unlike,
            "nearest": self.nearest,
            "boxes": self.look.boxes,
            "unsure_boxes": self.look.unsure_boxes,
            "reason": self.reason,
        }


def rank_pages(pages: Sequence[PageLook], labelled: Sequence[PageLook], count: int) -> list[RankedPage]:
    """All pages, the `count` chosen ones first in the order of their choice, the others by what is left of their score.

    Every choice takes the page with the highest product of uncertainty and distance to the nearest page that is
    labelled or was chosen before, so a copy of a labelled page comes last. Same pages, same order: nothing is random.
    """
    if not pages:
        return []
    vectors = _standardised([*pages, *labelled])
    choice = _Choice(_uncertainties(pages), vectors[: len(pages)])
    for at, vector in enumerate(vectors[len(pages) :]):
        choice.compare(vector, len(pages) + at)
    usual = np.median(vectors[len(pages) :] if labelled else vectors, axis=0)
    names = [look.name for look in (*pages, *labelled)]
    median = float(np.median(choice.unsure))
    ranked = []
    for at in choice.order(min(count, len(pages))):
        unlike, nearest = choice.placed[at]
        strange = _strange(vectors[at] - usual)
        known = None if nearest is None else names[nearest]
        unsure = float(choice.unsure[at])
        reason = _reason(pages[at], unsure, median, unlike, known, strange)
        ranked.append(RankedPage(pages[at], at in choice.chosen, unsure * unlike, unsure, unlike, known, reason))
    return ranked


class _Choice:
    """Distances of all pages to the nearest one that is known; memory grows with the pages, not with their pairs."""

    def __init__(self, unsure: NDArray[np.float64], vectors: Vectors) -> None:
        self.unsure, self.vectors = unsure, vectors
        self.distances = np.full(len(vectors), np.inf)
        self.nearest = np.full(len(vectors), -1)
        self.chosen: set[int] = set()
        self.placed: dict[int, tuple[float, int | None]] = {}
        """Distance of each page when its place was decided, and the page that it was to."""

    def compare(self, vector: Vectors, number: int) -> None:
        """Take a page as known."""
        # Two pages at random differ in each feature by the square root of 2 spreads.
        distances = np.sqrt(np.mean((self.vectors - vector) ** 2, axis=1) / 2)
        closer = distances < self.distances
        self.distances[closer], self.nearest[closer] = distances[closer], number

    def order(self, count: int) -> list[int]:
        """The numbers of all pages in the order of the ranking."""
        order: list[int] = []
        for _ in range(count):
            scores = self._scores()
            scores[order] = -np.inf
            best = int(np.argmax(scores))
            self._place(best)
            self.chosen.add(best)
            order.append(best)
            self.compare(self.vectors[best], best)
        scores = self._scores()
        others = [at for at in np.argsort(-scores, kind="stable").tolist() if at not in self.chosen]
        for at in others:
            self._place(at)
        return order + others

    def _scores(self) -> NDArray[np.float64]:
        return self.unsure * np.where(np.isinf(self.distances), 1.0, self.distances)

    def _place(self, at: int) -> None:
        is_known = self.nearest[at] >= 0
        self.placed[at] = (float(self.distances[at]), int(self.nearest[at])) if is_known else (1.0, None)


def _uncertainties(pages: Sequence[PageLook]) -> NDArray[np.float64]:
    known = [look.unsure for look in pages if look.unsure is not None]
    # Where nothing is found, nothing is known either: how unlike such a page is decides.
    usual = float(np.median(known)) if known else 1.0
    return np.array([usual if look.unsure is None else look.unsure for look in pages])


def _standardised(looks: Sequence[PageLook]) -> Vectors:
    """Features in spreads from their median: the middle two thirds of the pages are between -1 and 1."""
    values = np.array([look.features for look in looks], dtype=np.float64)
    low, middle, high = np.percentile(values, (16, 50, 84), axis=0)
    spread = (high - low) / 2
    # If most pages are the same, the few others still differ.
    spread = np.where(spread > 1e-6, spread, values.std(axis=0))
    spread = np.where(spread > 1e-6, spread, 1.0)
    vectors: Vectors = ((values - middle) / spread).clip(-LIMIT, LIMIT).astype(np.float32)
    return vectors


def _strange(differences: NDArray[np.float32]) -> list[str]:
    """The words for the features that differ most from the usual page."""
    order = np.argsort(-np.abs(differences), kind="stable")[:MAX_TOLD].tolist()
    return [FEATURES[at][int(differences[at] > 0)] for at in order if abs(differences[at]) >= TOLD]


def _reason(
    look: PageLook, unsure: float, median: float, unlike: float, nearest: str | None, strange: Sequence[str]
) -> str:
    if look.unsure is None:
        doubt = "no text found"
    else:
        doubt = f"unsure {unsure:.3f} (median {median:.3f}), {look.unsure_boxes} boxes near box_thresh"
    words = f": {', '.join(strange)}" if strange else ""
    return f"{doubt}; unlike {unlike:.2f}{'' if nearest is None else f' from {nearest}'}{words}"
