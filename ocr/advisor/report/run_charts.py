"""The charts of runs: one chart per figure, one line per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ocr.advisor.report.line_chart import Line, LineChart, Point, line_style
from ocr.advisor.report.number_format import in_bytes, in_count, in_percent, in_seconds
from ocr.advisor.report.run_figures import WAIT, Run, in_loss, score
from ocr.advisor.report.svg_chart import Chart, ChartRow, Mark, time_axis

EPOCHS = "epochs trained"
PARTS = {
    WAIT: ("waiting for data", "c5"),
    "forward": ("forward", "c1"),
    "backward": ("backward", "c2"),
    "boxes": ("boxes", "c3"),
    "scores": ("scores", "c4"),
}
HMEANS = {"hmean": "IoU 0.5", "hmean_70": "IoU 0.7"}
BEST = "Of every validation; the figure is that of the best."


def hmean_charts(runs: Sequence[Run]) -> list[LineChart]:
    """One run: both thresholds in one chart. Several: one chart per threshold."""
    if len(runs) > 1:
        return _present(*(_hmean_chart(runs, figure, name) for figure, name in HMEANS.items()))
    lines = [
        Line(name, runs[0].curve(figure), score(runs[0].best, figure), line_style(at))
        for at, (figure, name) in enumerate(HMEANS.items())
    ]
    return _present(LineChart("H-mean", EPOCHS, "H-mean", lines, BEST, from_zero=False))


def _hmean_chart(runs: Sequence[Run], figure: str, name: str) -> LineChart:
    lines = _lines(runs, lambda run: run.curve(figure), lambda run: score(run.best, figure))
    return LineChart(f"H-mean at {name}", EPOCHS, "H-mean", lines, BEST, from_zero=False)


def other_charts(runs: Sequence[Run]) -> list[LineChart]:
    """Loss, speed, waiting and memory."""
    loss = _lines(runs, lambda run: run.losses, lambda run: in_loss(run.last_loss))
    speed = _lines(runs, lambda run: run.curve("samples_per_s"), lambda run: in_count(run.samples_per_s))
    memory = _lines(runs, lambda run: run.curve("memory_gb"), lambda run: in_bytes(run.most_bytes))
    wait = _lines(runs, lambda run: run.wait_shares, lambda run: in_percent(run.wait_share))
    return _present(
        LineChart("Loss", EPOCHS, "training loss", loss, "Of logged steps; the figure is the mean of the last epoch."),
        LineChart("Speed", EPOCHS, "samples per second", speed, "With validation; the figure is the median."),
        LineChart("Waiting for data", EPOCHS, "share of the epoch", wait, "The figure is the median.", is_share=True),
        LineChart("Memory", EPOCHS, "GB", memory, "After each epoch, with worker processes; the figure is the most."),
    )


def parts_chart(runs: Sequence[Run]) -> Chart:
    """What the time of an epoch was spent on."""
    timed = [(run, seconds) for run in runs if sum((seconds := run.seconds).values()) > 0]
    factor, unit = time_axis(max((sum(seconds.values()) for _, seconds in timed), default=0.0))
    rows = []
    for run, seconds in timed:
        end, marks = 0.0, []
        for part, (_, colour) in PARTS.items():
            start, end = end, end + seconds.get(part, 0.0) * factor
            marks += [Mark("bar", start, end, colour)] if end > start else []
        rows.append(ChartRow(run.name, in_seconds(sum(seconds.values())), marks))
    used = {mark.colour for row in rows for mark in row.marks}
    legend = {colour: name for name, colour in PARTS.values() if colour in used}
    return Chart("Time of an epoch", f"{unit}, mean of all epochs", rows, legend=legend)


def _lines(runs: Sequence[Run], points: Callable[[Run], Sequence[Point]], value: Callable[[Run], str]) -> list[Line]:
    return [Line(run.name, points(run), value(run), line_style(at)) for at, run in enumerate(runs)]


def _present(*charts: LineChart) -> list[LineChart]:
    return [chart for chart in charts if any(line.points for line in chart.lines)]
