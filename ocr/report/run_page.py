"""The page of runs: curves, a comparison, the hardest pages, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ocr.report.charts import Line, LineChart, Point, line_style
from ocr.report.numbers import MISSING, in_bytes, in_count, in_digits, in_percent, in_score, in_seconds
from ocr.report.page import breakable, render, write_page

WAIT, WAIT_IS_MUCH = "data_wait", 0.1
MAX_HARDEST = 30
EPOCHS = "epochs trained"
PARTS = {
    WAIT: ("waiting for data", "c5"),
    "forward": ("forward", "c1"),
    "backward": ("backward", "c2"),
    "boxes": ("boxes", "c3"),
    "scores": ("scores", "c4"),
}
HMEANS = {"hmean": "IoU 0.5", "hmean_70": "IoU 0.7"}
SCORES = ("hmean", "hmean_70", "precision", "recall")
IDENTITIES = ("output_dir",)
"""Settings that differ between any two runs."""


@dataclass(frozen=True)
class Run:
    """What `read_run` found, under the name that the run has in charts and tables."""

    name: str
    found: Mapping[str, Any]

    @property
    def epochs(self) -> list[Mapping[str, Any]]:
        return list(self.found["epochs"])

    @property
    def trained(self) -> int:
        """How many epochs have ended."""
        return 1 + int(max((epoch["epoch"] for epoch in self.epochs), default=-1))

    @property
    def last_loss(self) -> float | None:
        """The mean of the last epoch that has ended."""
        last = [loss for epochs, loss in self.found["losses"] if self.trained - 1 < epochs <= self.trained]
        return fmean(last) if last else None

    def curve(self, figure: str) -> list[Point]:
        """Epochs trained so far, and a figure of the epoch; those without one are left out."""
        return [(epoch["epoch"] + 1, epoch[figure]) for epoch in self.epochs if figure in epoch]

    @cached_property
    def best(self) -> Mapping[str, Any]:
        """The epoch with the highest H-mean; empty if nothing was validated."""
        return max((e for e in self.epochs if "hmean" in e), key=lambda epoch: epoch["hmean"], default={})

    @property
    def wait_shares(self) -> list[Point]:
        """Epochs trained so far, and the share of the epoch in which the model waited for data."""
        timed = [(epoch["epoch"] + 1, epoch.get("seconds", {})) for epoch in self.epochs]
        return [(at, spent[WAIT] / sum(spent.values())) for at, spent in timed if WAIT in spent and sum(spent.values())]

    @property
    def wait_share(self) -> float | None:
        return _median(self.wait_shares)

    @property
    def samples_per_s(self) -> float | None:
        return _median(self.curve("samples_per_s"))

    @property
    def most_bytes(self) -> float | None:
        """The largest memory after an epoch; None if the run did not log it."""
        return max((1e9 * size for _, size in self.curve("memory_gb")), default=None)

    @property
    def seconds(self) -> dict[str, float]:
        """Of each part of an epoch, the mean over all epochs."""
        timed = [epoch["seconds"] for epoch in self.epochs if epoch.get("seconds")]
        return {
            name: fmean(spent.get(name, 0.0) for spent in timed) for name in dict.fromkeys(n for s in timed for n in s)
        }

    @property
    def total_seconds(self) -> float | None:
        return sum(sum(epoch.get("seconds", {}).values()) for epoch in self.epochs) or None


def _median(points: Sequence[Point]) -> float | None:
    return median(value for _, value in points) if points else None


def name_runs(found: Sequence[Mapping[str, Any]]) -> list[Run]:
    """Runs under the names of their folders, or under their paths if some of those are the same."""
    names = [one["name"] for one in found]
    key = "name" if len(set(names)) == len(names) else "folder"
    return [Run(one[key], one) for one in found]


def render_runs(found: Sequence[Mapping[str, Any]]) -> str:
    """The page of runs as text."""
    return render("run.html", **_content(found))


def write_runs(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the page of runs."""
    write_page(path, "run.html", **_content(found))


def _content(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    runs = name_runs(found)
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
        "parts_keys": [
            (colour, name) for part, (name, colour) in PARTS.items() if any(part in r.seconds for r in runs)
        ],
        "outcome": _outcome(runs),
        "hardest": _hardest([run for run in runs if run.found["hardest"]]),
        "without_pages": [run.name for run in runs if not run.found["hardest"]],
        "without_settings": [run.name for run in runs if not run.found["settings"]],
        "differing": _settings([run for run in runs if run.found["settings"]], differing=True),
        "settings": [(run.name, _settings([run])) for run in runs if run.found["settings"]],
        "epochs": [(run.name, _epochs(run)) for run in runs if run.epochs],
        "commands": dict.fromkeys(run.found["command"] for run in runs if run.found["command"]),
    }


def verdict(runs: Sequence[Run]) -> tuple[str, str]:
    """The outcome in a sentence, and whether that is bad (wrong) or neither (plain)."""
    scored = [run for run in runs if run.best]
    if not scored:
        trained = max(run.trained for run in runs)
        done = f"{in_count(trained)} epochs" if trained != 1 else "1 epoch"
        return (f"{done} without a validation" if trained else "No epoch has ended yet"), "plain"
    first = max(scored, key=lambda run: run.best["hmean"])
    sentence = f"H-mean {score(first.best, 'hmean')} after {first.best['epoch'] + 1} of {first.trained} epochs"
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
    loss = _lines(runs, lambda run: run.found["losses"], lambda run: in_loss(run.last_loss))
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
        (run.name, in_seconds(total), [(PARTS[part][1], spent[part] / longest) for part in PARTS if part in spent])
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
        planned = run.found["max_epochs"]
        is_planned = isinstance(planned, int) and planned > 0
        kept = [f"{one['name']} {in_bytes(one['bytes'])}" for one in run.found["checkpoints"]]
        body.append(
            [
                run.name,
                *(score(run.best, figure) for figure in SCORES),
                in_count(run.best["epoch"] + 1) if run.best else MISSING,
                in_count(run.trained) + (f" of {in_count(planned)}" if is_planned else ""),
                in_loss(run.last_loss),
                in_count(run.samples_per_s),
                in_percent(run.wait_share),
                in_seconds(run.total_seconds),
                ", ".join(kept),
            ]
        )
    return body


def _hardest(runs: Sequence[Run]) -> dict[str, Any]:
    """The pages with the lowest scores: of one run all figures, of several the H-mean in each."""
    if not runs:
        return {}
    if len(runs) == 1:
        pages = runs[0].found["hardest"]
        head = ["page", "H-mean", "at IoU 0.7", "missed", "false", "epoch"]
        body = [
            [
                page.get("page"),
                score(page, "hmean"),
                score(page, "hmean_70"),
                page.get("missed", MISSING),
                page.get("false", MISSING),
                page["epoch"] + 1 if isinstance(page.get("epoch"), int) else MISSING,
            ]
            for page in pages
        ]
    else:
        by_page: dict[str, dict[str, Mapping[str, Any]]] = {}
        for run in runs:
            for page in run.found["hardest"]:
                by_page.setdefault(str(page.get("page")), {})[run.name] = page
        head = ["page", *(f"H-mean in {run.name}" for run in runs)]
        body = [[page, *(score(by_page[page].get(run.name, {}), "hmean") for run in runs)] for page in by_page]
        body.sort(key=lambda row: min(row[1:]))
    most = f"The {MAX_HARDEST} worst of {len(body)} listed pages" if len(body) > MAX_HARDEST else "Worst first"
    return {"caption": most, "head": head, "body": body[:MAX_HARDEST]}


def _settings(runs: Sequence[Run], differing: bool = False) -> list[list[Any]]:
    """Settings and their value in each run; of several only those that differ."""
    body = []
    for name in dict.fromkeys(name for run in runs for name in run.found["settings"]):
        values = [run.found["settings"].get(name, MISSING) for run in runs]
        if not differing or (len(set(values)) > 1 and name not in IDENTITIES):
            body.append([breakable(name), *map(breakable, values)])
    return body


def _epochs(run: Run) -> list[list[str]]:
    waits = dict(run.wait_shares)
    return [
        [
            in_count(epoch["epoch"] + 1),
            *(score(epoch, figure) for figure in SCORES),
            in_count(epoch.get("samples_per_s")),
            in_percent(waits.get(epoch["epoch"] + 1)),
            in_seconds(sum(epoch.get("seconds", {}).values()) or None),
        ]
        for epoch in run.epochs
    ]
