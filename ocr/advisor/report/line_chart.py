"""A chart of lines over two axes, in the style of the bar charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from ocr.advisor.report.number_format import in_digits
from ocr.advisor.report.svg_chart import (
    EDGE_PX,
    TICK_PX,
    WIDTHS,
    draw_legend,
    frame_figure,
    in_tick,
    legible_step,
    px,
    svg_picture,
    text_width,
    tick_step,
)

Point = tuple[float, float]
PLOT_PX = 170
"""Height of the plot."""
MAX_POINTS = 240
"""More points than this share pixels, and become means of their neighbours."""
DOTTED_POINTS = 60
"""At most so many points have a dot each, which tells its figures to a mouse."""
Y_TICKS = 4
DASHES = ("", " dashed", " dotted")


@dataclass(frozen=True, slots=True)
class Line:
    """Points in the order of x; `value` is shown beside the name, `style` is a colour and a dash."""

    label: str
    points: Sequence[Point]
    value: str = ""
    style: str = "c1"


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over common axes; the vertical one starts at zero unless `from_zero` is false."""

    title: str
    x_axis: str
    y_axis: str
    lines: Sequence[Line]
    note: str = ""
    from_zero: bool = True
    is_share: bool = False
    """Whether values are shares of 1, written in percent."""


@dataclass(frozen=True, slots=True)
class _Plot:
    """Where values are drawn."""

    left: float
    top: float
    scale: tuple[float, float]
    origin: Point
    width: int
    x_end: float
    y_ticks: Sequence[float] = field(default_factory=list)

    def x(self, value: float) -> float:
        return self.left + (value - self.origin[0]) * self.scale[0]

    def y(self, value: float) -> float:
        return self.top + PLOT_PX - (value - self.origin[1]) * self.scale[1]


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


def draw_line_figure(chart: LineChart, name: str) -> str:
    """The chart with its caption, once per width."""
    pictures = [draw_lines(chart, width, f"{name}-{kind}", kind) for kind, width in WIDTHS.items()]
    return frame_figure(chart.title, chart.note, pictures)


def draw_lines(chart: LineChart, width: int, name: str, kind: str = "wide") -> str:
    """One SVG of this width."""
    lines = [line for line in chart.lines if line.points]
    keys = {f"line {line.style}": " ".join(filter(None, (line.label, line.value))) for line in lines}
    legend, first = draw_legend(keys, width)
    plot = _lay_out(chart, lines, width, first + 24)
    body = _draw_axes(chart, plot) + legend + "".join(_draw_line(chart, line, plot) for line in lines)
    told = ". ".join(_tell(chart, line) for line in lines)
    text = f"{told}. Axes: {chart.x_axis}; {chart.y_axis}."
    return svg_picture(name, kind, (width, int(plot.top) + PLOT_PX + 36), chart.title, text, body)


def _tell(chart: LineChart, line: Line) -> str:
    first, last = (f"{_value(chart, y)} at {in_digits(x)}" for x, y in (line.points[0], line.points[-1]))
    return f"{line.label}: from {first} to {last}"


def _value(chart: LineChart, value: float) -> str:
    return f"{in_digits(100 * value)} %" if chart.is_share else in_digits(value)


def _lay_out(chart: LineChart, lines: Sequence[Line], width: int, top: float) -> _Plot:
    xs, ys = [x for line in lines for x, _ in line.points], [y for line in lines for _, y in line.points]
    low, high = (0.0 if chart.from_zero else min(ys)), max(ys)
    high = high if high > low else low + (abs(low) or 1.0)
    step = tick_step(high - low, Y_TICKS)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    ticks = [low + at * step for at in range(round((high - low) / step) + 1)]
    left = EDGE_PX + max(text_width(_tick(chart, tick, step), TICK_PX) for tick in ticks) + 6
    start, end = min(0.0, *xs), max(xs)
    end = end if end > start else start + 1.0
    right = width - EDGE_PX - 8
    return _Plot(left, top, ((right - left) / (end - start), PLOT_PX / (high - low)), (start, low), width, end, ticks)


def _tick(chart: LineChart, value: float, step: float) -> str:
    return f"{in_tick(100 * value, 100 * step)} %" if chart.is_share else in_tick(value, step)


def _draw_axes(chart: LineChart, plot: _Plot) -> str:
    right, bottom = plot.x(plot.x_end), plot.y(plot.origin[1])
    step = plot.y_ticks[1] - plot.y_ticks[0]
    drawn = []
    for tick in plot.y_ticks:
        y = plot.y(tick)
        drawn.append(f'<path class="grid" d="M{px(plot.left)} {px(y + 0.5)}H{px(right)}"/>')
        label = escape(_tick(chart, tick, step))
        drawn.append(f'<text class="tick" x="{px(plot.left - 6)}" y="{px(y + 4)}" text-anchor="end">{label}</text>')
    x_step = legible_step(plot.x_end - plot.origin[0], plot.scale[0])
    for at in range(int((plot.x_end - plot.origin[0]) / x_step * (1 + 1e-9)) + 1):
        label, x = in_tick(plot.origin[0] + at * x_step, x_step), plot.x(plot.origin[0] + at * x_step)
        anchor = "end" if x + text_width(label, TICK_PX) / 2 > plot.width else "middle"
        drawn.append(f'<text class="tick" x="{px(x)}" y="{px(bottom + 15)}" text-anchor="{anchor}">{label}</text>')
    drawn.append(f'<path class="axis" d="M{px(plot.left)} {px(bottom)}.5H{px(right)}"/>')
    unit = f'<text class="unit" x="{px(right)}" y="{px(bottom + 32)}" text-anchor="end">{escape(chart.x_axis)}</text>'
    above = f'<text class="unit" x="{EDGE_PX}" y="{px(plot.top - 13)}">{escape(chart.y_axis)}</text>'
    return "".join(drawn) + unit + above


def _draw_line(chart: LineChart, line: Line, plot: _Plot) -> str:
    points = thinned(line.points)
    way = "L".join(f"{px(plot.x(x))} {px(plot.y(y))}" for x, y in points)
    drawn = [f'<path class="line {line.style}" d="M{way}"/>']
    if len(points) <= DOTTED_POINTS:
        colour = line.style.split()[0]
        for x, y in points:
            told = escape(f"{line.label}: {_value(chart, y)} at {in_digits(x)} {chart.x_axis}")
            circle = f'class="dot {colour}" cx="{px(plot.x(x))}" cy="{px(plot.y(y))}" r="2.5"'
            drawn.append(f"<circle {circle}><title>{told}</title></circle>")
    return f'<g class="row">{"".join(drawn)}</g>'
