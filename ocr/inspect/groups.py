"""Scores by group: text height, aspect, angle, contrast, position, page size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ocr.evaluation.hmean import Counts
from ocr.inspect.result import PageResult
from ocr.inspect.shapes import Shape

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
    """Recall by the look of the words, precision by that of the boxes; groups without both are left out."""
    groups = []
    for rule in PROPERTIES:
        words = _count((rule.value(word.shape), word.good) for page in pages for word in page.words)(rule.limits)
        boxes = _count((rule.value(box.shape), box.good) for page in pages for box in page.boxes)(rule.limits)
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


def _count(values: Iterable[tuple[float, bool]]) -> Callable[[Sequence[float]], list[list[int]]]:
    def by(limits: Sequence[float]) -> list[list[int]]:
        counts = [[0, 0] for _ in range(len(limits) + 1)]
        for value, good in values:
            row = counts[interval_of(value, limits)]
            row[0] += good
            row[1] += 1
        return counts

    return by


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
