"""A chart of lines as positions for the template; bars need none, they are widths in percent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ocr.report.numbers import in_digits

Point = tuple[float, float]
WIDTHS = {"narrow": 340, "wide": 520}
"""A phone, and one of two columns of a desktop: text is never scaled down."""
PLOT_PX, TOP_PX, BELOW_PX, LETTER_PX = 170, 24, 36, 7
MAX_POINTS = 240
"""More points than this share pixels, and become means of their neighbours."""
DOTTED_POINTS = 60
"""At most so many points have a dot each, which tells its figures to a mouse."""
DASHES = ("", " dashed", " dotted")


@dataclass(frozen=True, slots=True)
class Line:
    """Points in the order of x; `value` is shown next to the name, `style` is a colour and a dash."""

    label: str
    points: Sequence[Point]
    value: str = ""
    style: str = "c1"


class Tick(NamedTuple):
    """A position in pixels and its label."""

    at: float
    label: str


class Path(NamedTuple):
    """A line as the template draws it."""

    style: str
    way: str
    dots: Sequence[tuple[float, float, str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart in one width."""

    kind: str
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    mark: float | None
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    paths: Sequence[Path]


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over common axes; the vertical one starts at zero unless `from_zero` is false, as does the other one."""

    title: str
    x_axis: str
    y_axis: str
    lines: Sequence[Line]
    note: str = ""
    from_zero: bool = True
    is_share: bool = False
    """Whether values are shares of 1, written in percent."""
    x_from_zero: bool = True
    mark: float | None = None
    """A place on the horizontal axis that is marked by a vertical line."""

    @property
    def shown(self) -> list[Line]:
        """Lines that have points."""
        return [line for line in self.lines if line.points]

    @property
    def text(self) -> str:
        """What the chart shows, for those who do not see it."""
        lines = [
            f"{line.label}: from {self.value(line.points[0][1])} to {self.value(line.points[-1][1])}"
            for line in self.shown
        ]
        return ". ".join([*lines, f"Axes: {self.x_axis}; {self.y_axis}."])

    def value(self, number: float) -> str:
        """A figure of the vertical axis."""
        return f"{in_digits(100 * number)} %" if self.is_share else in_digits(number)

    def plots(self) -> list[Plot]:
        """The chart once per width; the stylesheet shows the one that fits."""
        return [self._plot(kind, width) for kind, width in WIDTHS.items()]

    def _plot(self, kind: str, width: int) -> Plot:
        xs, ys = zip(*(point for line in self.shown for point in line.points), strict=True)
        low, high = 0.0 if self.from_zero else min(ys), max(ys)
        high = high if high > low else low + (abs(low) or 1.0)
        step = tick_step(high - low, 4)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        start: float = min(0.0, *xs) if self.x_from_zero else min(xs)
        end: float = max(*xs, start + 1e-9)
        scale = 100 if self.is_share else 1
        labels = [
            (tick, f"{in_tick(scale * tick, scale * step)}{' %' * self.is_share}") for tick in ticks(low, high, step)
        ]
        left = 2 + LETTER_PX * max(len(label) for _, label in labels) + 6
        right, bottom = width - 12, TOP_PX + PLOT_PX

        def x(value: float) -> float:
            return round(left + (value - start) / (end - start) * (right - left), 2)

        def y(value: float) -> float:
            return round(bottom - (value - low) / (high - low) * PLOT_PX, 2)

        x_step = tick_step(end - start, max(2, (right - left) // 60))
        x_ticks = [Tick(x(at), in_tick(at, x_step)) for at in ticks(start, end, x_step) if at <= end * (1 + 1e-9)]
        paths = []
        for line in self.shown:
            points = thinned(line.points)
            dots = [(x(a), y(b), f"{line.label}: {self.value(b)} at {in_digits(a)} {self.x_axis}") for a, b in points]
            way = "M" + "L".join(f"{at} {height}" for at, height, _ in dots)
            paths.append(Path(line.style, way, dots if len(dots) <= DOTTED_POINTS else ()))
        y_ticks = [Tick(y(tick), label) for tick, label in labels]
        mark = None if self.mark is None else x(self.mark)
        return Plot(kind, width, bottom + BELOW_PX, left, right, TOP_PX, bottom, mark, x_ticks, y_ticks, paths)


def line_style(number: int) -> str:
    """The colour of the n-th line; from the sixth on the same colours are dashed, then dotted.

    >>> line_style(0), line_style(6)
    ('c1', 'c2 dashed')
    """
    return f"c{number % 5 + 1}{DASHES[number // 5 % len(DASHES)]}"


def thinned(points: Sequence[Point], most: int = MAX_POINTS) -> list[Point]:
    """At most so many points, each the mean of its neighbours.

    >>> thinned([(1, 4.0), (2, 2.0), (3, 6.0)], most=2)
    [(1.5, 3.0), (3.0, 6.0)]
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / most)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def ticks(low: float, high: float, step: float) -> list[float]:
    """Multiples of the step from low to high.

    >>> ticks(0, 1, 0.5)
    [0.0, 0.5, 1.0]
    """
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_step(length: float, most: float) -> float:
    """The smallest round step with at most `most` ticks.

    >>> tick_step(61.3, 6), tick_step(0.9, 4)
    (20.0, 0.5)
    """
    power: float = 10.0 ** math.floor(math.log10(length / most))
    return next(round(power * digit, 12) for digit in (1, 2, 5, 10, 20) if length / (power * digit) <= most)


def in_tick(value: float, step: float) -> str:
    """A tick label with as many decimals as its step."""
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
