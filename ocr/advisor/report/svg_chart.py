"""One kind of chart: rows of bars, whiskers and dots over one axis, as SVG styled by the page.

On a phone a label is above its bar, so that long names fit. The width of a text is estimated from the letter widths of
DejaVu Sans, the widest of the usual fonts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

# A phone 390 pixels wide, one of two columns on a desktop (and a printed page): text is never scaled down.
WIDTHS = {"narrow": 340, "wide": 520}
# The same, and both columns of a desktop.
ALL_WIDTHS = WIDTHS | {"full": 1090}
TEXT_PX, TICK_PX, LINE_PX = 12, 11, 15
BAR_PX, DOT_PX = 10, 4
# Letters such as J extend beyond their box, and an SVG clips what is outside.
EDGE_PX = 2
# From this width on labels have their own column, of at most this share.
BESIDE_PX, LABEL_SHARE = 500, 0.33
LABEL_LINES = 3
_NARROW, _SLIM, _BROAD = frozenset("iljI|!.,:;' "), frozenset('fJrst()[]{}-/\\"cz*°'), frozenset("mwMWOQ@%&+=<>~")


@dataclass(frozen=True, slots=True)
class Mark:
    """Drawn on a row, in the unit of the axis: a bar, whisker or link from start to end; a dot or ring at end."""

    shape: str
    start: float
    end: float
    colour: str = "c1"


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A name, the value at the end of its line, and what is drawn."""

    label: str
    value: str
    marks: Sequence[Mark]
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """The axis starts at `left`, with `scale` pixels per unit; labels are above the bars if `label_room` is 0."""

    width: int
    left: int
    scale: float
    label_room: int

    def x(self, value: float) -> float:
        """The position of a value."""
        return self.left + value * self.scale


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows over one axis that starts at zero; `legend` names the colours, `line` is drawn through all rows."""

    title: str
    axis: str
    rows: Sequence[ChartRow]
    note: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    line: float | None = None

    @property
    def top(self) -> float:
        """The largest value; 1 if all are zero, because an axis needs a length."""
        top = max((mark.end for row in self.rows for mark in row.marks), default=0.0)
        return top if top > 0 else 1.0


def draw_figure(chart: Chart, name: str, widths: Mapping[str, int] = WIDTHS) -> str:
    """The chart with its caption, once per width; the page's style shows the one that fits."""
    pictures = [draw(chart, width, f"{name}-{kind}", kind) for kind, width in widths.items()]
    return frame_figure(chart.title, chart.note, pictures)


def frame_figure(title: str, note: str, pictures: Sequence[str]) -> str:
    """Pictures of one chart in several widths, with title and note."""
    said = f"<p>{escape(note)}</p>" if note else ""
    caption = f"<figcaption><h3>{escape(title)}</h3>{said}</figcaption>"
    return f'<figure class="card w{len(pictures)}">{caption}{"".join(pictures)}</figure>'


def svg_picture(name: str, kind: str, size: tuple[int, int], title: str, text: str, body: str) -> str:
    """An SVG with its title and a description for those who do not see it."""
    width, height = size
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-labelledby="{name}-title" aria-describedby="{name}-text">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(text)}</desc>{body}</svg>'
    )


def draw(chart: Chart, width: int, name: str, kind: str = "wide") -> str:
    """One SVG of this width."""
    frame = _lay_out(chart, width)
    legend, first = draw_legend(chart.legend, width)
    height, drawn = first, []
    for row in chart.rows:
        text, row_height = _draw_row(row, frame, height)
        drawn.append(text)
        height += row_height
    axis = _draw_axis(chart, frame, first, height)
    shown = ". ".join(f"{row.label}: {row.value}" for row in chart.rows)
    text, body = f"{shown}. Axis: {chart.axis}.", f"{axis}{legend}{''.join(drawn)}"
    return svg_picture(name, kind, (width, height + 36), chart.title, text, body)


def _lay_out(chart: Chart, width: int) -> Frame:
    if width < BESIDE_PX:
        return Frame(width, EDGE_PX, (width - EDGE_PX - DOT_PX - 1) / chart.top, 0)
    labels = max(text_width(row.label, strong=row.strong) for row in chart.rows)
    values = max(text_width(row.value, strong=row.strong) for row in chart.rows)
    room = math.ceil(min(labels, width * LABEL_SHARE))
    left = EDGE_PX + room + 12
    return Frame(width, left, (width - EDGE_PX - values - 12 - left) / chart.top, room)


def _draw_row(row: ChartRow, frame: Frame, y: int) -> tuple[str, int]:
    """Label, bar and value in one line if there is a column for labels; otherwise the bar is below."""
    above = not frame.label_room
    room = frame.label_room or frame.width - 2 * EDGE_PX - text_width(row.value, strong=row.strong) - 12
    lines = fold(row.label, room, strong=row.strong)
    bar_y = y + LINE_PX * len(lines) + 3 if above else y + (LINE_PX * len(lines) - BAR_PX) // 2 + 2
    value_y = bar_y - 6 if above else bar_y + BAR_PX - 1
    texts = "".join(
        f'<text x="{EDGE_PX}" y="{y + TEXT_PX + LINE_PX * at}">{escape(line)}</text>' for at, line in enumerate(lines)
    )
    value = (
        f'<text class="value" x="{frame.width - EDGE_PX}" y="{value_y}" text-anchor="end">{escape(row.value)}</text>'
    )
    full = f"<title>{escape(f'{row.label}: {row.value}')}</title>"
    strong = " strong" if row.strong else ""
    marks = _draw_marks(row.marks, bar_y, frame)
    below = bar_y + BAR_PX + 10 if above else y + LINE_PX * len(lines) + 9
    return f'<g class="row{strong}">{full}{marks}{texts}{value}</g>', below - y


def _draw_marks(marks: Sequence[Mark], y: int, frame: Frame) -> str:
    """Bars of one colour are one path, because a timeline has hundreds."""
    drawn: list[str] = []
    bars: dict[str, list[str]] = {}
    middle = y + BAR_PX / 2
    for mark in marks:
        start, end = frame.x(mark.start), frame.x(mark.end)
        if mark.shape == "bar":
            stacked = 1 if end - start > 3 and mark.end != marks[-1].end else 0
            long = max(end - start - stacked, 0.6 if mark.end > mark.start else 0)
            bars.setdefault(mark.colour, []).append(f"M{px(start)} {y}h{px(long)}v{BAR_PX}h-{px(long)}z")
        elif mark.shape == "whisker":
            ends = f"M{px(start)} {y - 1}v{BAR_PX + 2}M{px(end)} {y - 1}v{BAR_PX + 2}"
            drawn.append(f'<path class="whisker" d="M{px(start)} {middle}H{px(end)}{ends}"/>')
        elif mark.shape == "link":
            drawn.append(f'<path class="link" d="M{px(start)} {middle}H{px(end)}"/>')
        else:
            drawn.append(f'<circle class="{mark.shape} {mark.colour}" cx="{px(end)}" cy="{middle}" r="{DOT_PX}"/>')
    paths = [f'<path class="bar {colour}" d="{"".join(parts)}"/>' for colour, parts in bars.items()]
    return "".join(paths + drawn)


def _draw_axis(chart: Chart, frame: Frame, first: int, y: int) -> str:
    right = frame.x(chart.top)
    step = legible_step(chart.top, frame.scale)
    drawn = []
    for at in range(int(chart.top / step * (1 + 1e-9)) + 1):
        x = frame.x(at * step)
        label = in_tick(at * step, step)
        half = text_width(label, TICK_PX) / 2
        anchor = "start" if x < half else "end" if x + half > frame.width else "middle"
        drawn.append(f'<path class="grid" d="M{px(x + 0.5)} {first}V{y}"/>')
        drawn.append(f'<text class="tick" x="{px(x)}" y="{y + 13}" text-anchor="{anchor}">{escape(label)}</text>')
    if chart.line is not None:
        drawn.append(f'<path class="today" d="M{px(frame.x(chart.line))} {first}V{y}"/>')
    base = f'<path class="axis" d="M{frame.left} {y}.5H{px(right)}"/>'
    unit = f'<text class="unit" x="{px(right)}" y="{y + 30}" text-anchor="end">{escape(chart.axis)}</text>'
    return "".join(drawn) + base + unit


def legible_step(top: float, scale: float) -> float:
    """The step of an axis of this length whose labels do not touch each other."""
    for most in range(7, 2, -1):
        step = tick_step(top, most)
        if text_width(in_tick(top, step), TICK_PX) + 16 <= step * scale:
            return step
    return tick_step(top, 2)


def draw_legend(legend: Mapping[str, str], width: int) -> tuple[str, int]:
    """Swatches, wrapped like words."""
    x, y, drawn = EDGE_PX, 0, []
    for colour, meaning in legend.items():
        text = fold(meaning, width - 24, lines=1)[0]
        long = math.ceil(15 + text_width(text, TICK_PX))
        if x > EDGE_PX and x + long > width:
            x, y = EDGE_PX, y + 18
        swatch = f'<rect class="{colour}" x="{x}" y="{y + 1}" width="10" height="10" rx="2"/>'
        if colour == "today" or colour.startswith("line "):
            swatch = f'<path class="{colour}" d="M{x} {y + 6}h11"/>'
        elif " " in colour:  # of a dot or ring
            swatch = f'<circle class="{colour}" cx="{x + 5}" cy="{y + 6}" r="4"/>'
        drawn.append(f'{swatch}<text class="key" x="{x + 15}" y="{y + 10}">{escape(text)}</text>')
        x += long + 14
    return "".join(drawn), y + 24 if legend else 0


def text_width(text: str, size_px: int = TEXT_PX, strong: bool = False) -> float:
    """An upper bound in pixels, for the fonts of the page."""
    ems = 0.0
    for letter in text:
        if letter in _NARROW:
            ems += 0.36
        elif letter in _SLIM:
            ems += 0.56
        elif letter in _BROAD:
            ems += 1.0
        elif letter >= "\u2e80":
            ems += 1.05
        else:
            ems += 0.72 if letter.isupper() else 0.65
    return ems * size_px * (1.15 if strong else 1)


def fold(text: str, room_px: float, lines: int = LABEL_LINES, strong: bool = False) -> list[str]:
    """Wrap words into lines; a word longer than a line is split, and text beyond the last line becomes an ellipsis."""

    def fits(part: str) -> bool:
        return len(part) < 2 or text_width(part, strong=strong) <= room_px

    folded, line = [], ""
    for word in text.split() or [""]:
        longer = f"{line} {word}".strip()
        if line and not fits(longer):
            folded.append(line)
            longer = word
        while not fits(longer):
            cut = next(count for count in range(len(longer) - 1, 0, -1) if fits(longer[:count]))
            folded.append(longer[:cut])
            longer = longer[cut:]
        line = longer
    folded.append(line)
    if len(folded) > lines:
        last = folded[lines - 1]
        while last and not fits(f"{last}…"):
            last = last[:-1]
        folded = [*folded[: lines - 1], f"{last.rstrip()}…"]
    return folded


def tick_step(top: float, most: int) -> float:
    """The smallest round step with at most `most` ticks.

    >>> tick_step(61.3, 6), tick_step(0.9, 4)
    (20.0, 0.5)
    """
    power = 10.0 ** math.floor(math.log10(top / most))
    return next(round(power * digit, 12) for digit in (1, 2, 5, 10, 20) if top / (power * digit) <= most)


def in_tick(value: float, step: float) -> str:
    """A tick label with as many decimals as its step."""
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def time_axis(top_seconds: float) -> tuple[float, str]:
    """The factor from seconds to the unit of an axis, and the name of that unit."""
    if top_seconds < 1:
        return 1000.0, "milliseconds"
    if top_seconds < 300:
        return 1.0, "seconds"
    return (1 / 60, "minutes") if top_seconds < 4 * 3600 else (1 / 3600, "hours")


def px(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
