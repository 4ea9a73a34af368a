"""The page of runs: curves, a comparison, the hardest pages, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ocr.report.charts import Line, LineChart, Point, line_style
from ocr.report.numbers import MISSING, in_bytes, in_count, in_digits, in_percent, in_score, in_seconds
from ocr.report.page import breakable, render, write_page
from ocr.report.runs import WAIT, Run

WAIT_IS_MUCH = 0.1
"""Share of an epoch."""
MAX_HARDEST = 30
EPOCHS = "epochs trained"
PARTS = {
    WAIT: ("c5", "waiting for data"),
    "forward": ("c1", "forward"),
    "backward": ("c2", "backward"),
    "boxes": ("c3", "boxes"),
    "scores": ("c4", "scores"),
}
"""Colours and names."""
HMEANS = {"hmean": "IoU 0.5", "hmean_70": "IoU 0.7"}
SCORES = ("hmean", "hmean_70", "precision", "recall")
IDENTITIES = ("output_dir",)
"""Settings that differ between any two runs."""


def render_runs(runs: Sequence[Run]) -> str:
    """The page of runs as text."""
    return render("run.html", **_content(runs))


def write_runs(runs: Sequence[Run], path: Path) -> None:
    """Write the page of runs."""
    write_page(path, "run.html", **_content(runs))


def _content(runs: Sequence[Run]) -> dict[str, Any]:
    if len({run.name for run in runs}) < len(runs):
        runs = [replace(run, name=str(run.folder)) for run in runs]
    sentence, state = verdict(runs)
    return {
        "title": f"report: {', '.join(run.name for run in runs)}",
        "heading": "report",
        "sentence": sentence,
        "state": state,
        "runs": runs,
        "tiles": _tiles(runs[0]) if len(runs) == 1 else [],
        "charts": [chart for chart in [*hmean_charts(runs), *other_charts(runs)] if chart.shown],
        "parts": parts_rows(runs),
        "parts_keys": [key for part, key in PARTS.items() if any(part in run.seconds for run in runs)],
        "outcome": _outcome(runs),
        "hardest": _hardest([run for run in runs if run.hardest]),
        "without_pages": [run.name for run in runs if not run.hardest],
        "without_settings": [run.name for run in runs if not run.settings],
        "differing": _settings([run for run in runs if run.settings], differing=True),
        "settings": [(run.name, _settings([run])) for run in runs if run.settings],
        "epochs": [(run.name, _epochs(run)) for run in runs if run.epochs],
        "commands": dict.fromkeys(run.command for run in runs if run.command),
    }


def verdict(runs: Sequence[Run]) -> tuple[str, str]:
    """The outcome in a sentence, and whether that is bad (wrong) or neither (plain)."""
    scored = [run for run in runs if run.best]
    if not scored:
        trained = max(run.trained for run in runs)
        done = f"{in_count(trained)} epochs" if trained != 1 else "1 epoch"
        return (f"{done} without a validation" if trained else "No epoch has ended yet"), "plain"
    first = max(scored, key=lambda run: run.best["hmean"])
    sentence = f"H-mean {score(first.best, 'hmean')} after {first.best['epoch']} of {first.trained} epochs"
    if len(runs) > 1:
        others = [f"{run.name} {score(run.best, 'hmean')}" for run in scored if run is not first]
        sentence = f"The best run is {first.name}: {sentence}" + (f" ({', '.join(others)})" if others else "")
    if first.wait_share is not None and first.wait_share > WAIT_IS_MUCH:
        return f"{sentence}; the model waited for data for {in_percent(first.wait_share)} of the time", "wrong"
    return sentence, "plain"


def score(epoch: Mapping[str, Any], figure: str) -> str:
    """A score of an epoch, or of a page; both are read from files."""
    value = epoch.get(figure)
    return in_score(value if isinstance(value, float | int) else None)


def _tiles(run: Run) -> list[tuple[str, str]]:
    return [
        ("H-mean at IoU 0.5", score(run.best, "hmean")),
        ("H-mean at IoU 0.7", score(run.best, "hmean_70")),
        ("samples per second", in_count(run.samples_per_s)),
        ("of the time waiting for data", in_percent(run.wait_share)),
        ("for all epochs", in_seconds(run.total_seconds)),
    ]


# -- charts


def hmean_charts(runs: Sequence[Run]) -> list[LineChart]:
    """One run: both thresholds in one chart. Several: one chart per threshold."""
    note = "Of every validation; the figure is the best."
    if len(runs) == 1:
        lines = [
            Line(name, runs[0].curve(figure), score(runs[0].best, figure), line_style(at))
            for at, (figure, name) in enumerate(HMEANS.items())
        ]
        return [LineChart("H-mean", EPOCHS, "H-mean", lines, note, from_zero=False)]
    charts = []
    for figure, name in HMEANS.items():
        lines = _lines(runs, lambda run: run.curve(figure), lambda run: score(run.best, figure))  # noqa: B023
        charts.append(LineChart(f"H-mean at {name}", EPOCHS, "H-mean", lines, note, from_zero=False))
    return charts


def other_charts(runs: Sequence[Run]) -> list[LineChart]:
    """Loss, speed, waiting and memory."""
    loss = _lines(runs, lambda run: run.losses, lambda run: in_loss(run.last_loss))
    speed = _lines(runs, lambda run: run.curve("samples_per_s"), lambda run: in_count(run.samples_per_s))
    memory = _lines(runs, lambda run: run.curve("memory_gb"), lambda run: in_bytes(run.most_bytes))
    wait = _lines(runs, lambda run: run.wait_shares, lambda run: in_percent(run.wait_share))
    return [
        LineChart("Loss", EPOCHS, "training loss", loss, "Of logged steps; the figure is the mean of the last epoch."),
        LineChart("Speed", EPOCHS, "samples per second", speed, "With validation; the figure is the median."),
        LineChart("Waiting for data", EPOCHS, "share of the epoch", wait, "The figure is the median.", is_share=True),
        LineChart("Memory", EPOCHS, "GB", memory, "After each epoch, with worker processes; the figure is the most."),
    ]


def parts_rows(runs: Sequence[Run]) -> list[tuple[str, str, list[tuple[str, float]]]]:
    """What the time of an epoch was spent on."""
    timed = [(run, run.seconds, sum(run.seconds.values())) for run in runs if run.seconds]
    longest = max((total for _, _, total in timed), default=1.0) or 1.0
    return [
        (run.name, in_seconds(total), [(PARTS[part][0], spent[part] / longest) for part in PARTS if part in spent])
        for run, spent, total in timed
    ]


def _lines(runs: Sequence[Run], points: Callable[[Run], Sequence[Point]], value: Callable[[Run], str]) -> list[Line]:
    return [Line(run.name, points(run), value(run), line_style(at)) for at, run in enumerate(runs)]


# -- tables


def in_loss(value: float | None) -> str:
    """A loss with three digits."""
    return MISSING if value is None else in_digits(value)


def _outcome(runs: Sequence[Run]) -> list[list[str]]:
    """The outcome of each run, best first."""
    body = []
    for run in sorted(runs, key=lambda run: -run.best.get("hmean", 0.0)):
        planned = run.max_epochs if isinstance(run.max_epochs, int) and run.max_epochs > 0 else None
        body.append(
            [
                run.name,
                *(score(run.best, figure) for figure in SCORES),
                in_count(run.best.get("epoch")),
                in_count(run.trained) + (f" of {in_count(planned)}" if planned else ""),
                in_loss(run.last_loss),
                in_count(run.samples_per_s),
                in_percent(run.wait_share),
                in_seconds(run.total_seconds),
                ", ".join(f"{name} {in_bytes(size)}" for name, size in run.checkpoints),
            ]
        )
    return body


def _hardest(runs: Sequence[Run]) -> dict[str, Any]:
    """The pages with the lowest scores: of one run all figures, of several the H-mean in each."""
    if not runs:
        return {}
    by_page: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        for page in run.hardest or ():
            by_page.setdefault(str(page.get("page")), {})[run.name] = page
    body: list[list[Any]]
    if len(runs) == 1:
        head = ["page", "H-mean", "at IoU 0.7", "missed", "false"]
        body = [
            [name, score(page, "hmean"), score(page, "hmean_70"), *(page.get(key, MISSING) for key in head[3:])]
            for name, found in by_page.items()
            for page in found.values()
        ]
    else:
        head = ["page", *(f"H-mean in {run.name}" for run in runs)]
        body = [[name, *(score(found.get(run.name, {}), "hmean") for run in runs)] for name, found in by_page.items()]
        body.sort(key=lambda row: min(row[1:]))
    caption = f"The {MAX_HARDEST} worst of {len(body)} listed pages" if len(body) > MAX_HARDEST else "Worst first"
    epochs = {page.get("epoch") for found in by_page.values() for page in found.values()}
    if len(runs) == 1 and len(epochs) == 1 and isinstance(epoch := epochs.pop(), int):
        caption += f", after epoch {epoch + 1}"
    return {"caption": caption, "head": head, "body": body[:MAX_HARDEST]}


def _settings(runs: Sequence[Run], differing: bool = False) -> list[list[Any]]:
    """Settings and their value in each run; of several only those that differ."""
    body = []
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        values = [run.settings.get(name, MISSING) for run in runs]
        if not differing or (len(set(values)) > 1 and name not in IDENTITIES):
            body.append([breakable(name), *map(breakable, values)])
    return body


def _epochs(run: Run) -> list[list[str]]:
    waits = dict(run.wait_shares)
    return [
        [
            in_count(epoch["epoch"]),
            *(score(epoch, figure) for figure in SCORES),
            in_count(epoch.get("samples_per_s")),
            in_percent(waits.get(epoch["epoch"])),
            in_seconds(sum(epoch.get("seconds", {}).values()) or None),
        ]
        for epoch in run.epochs
    ]
