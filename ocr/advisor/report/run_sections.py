"""The sections of the report about runs: curves, a comparison, the hardest pages, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ocr.advisor.report.html_parts import columns, section, tiles
from ocr.advisor.report.html_tables import Ready, draw_table
from ocr.advisor.report.line_chart import draw_line_figure
from ocr.advisor.report.number_format import MISSING, in_bytes, in_count, in_percent, in_seconds
from ocr.advisor.report.result_fields import number, objects, words
from ocr.advisor.report.run_charts import hmean_charts, other_charts, parts_chart
from ocr.advisor.report.run_figures import Run, in_loss, score
from ocr.advisor.report.svg_chart import draw_figure

MAX_HARDEST = 30
IDENTITIES = ("output_dir",)
"""Settings that differ between any two runs."""


def draw_run_tiles(runs: Sequence[Run]) -> str:
    """The most important figures of the only run."""
    if len(runs) != 1:
        return ""
    (run,) = runs
    return tiles(
        [
            ("H-mean at IoU 0.5", score(run.best, "hmean")),
            ("H-mean at IoU 0.7", score(run.best, "hmean_70")),
            ("samples per second", in_count(run.samples_per_s)),
            ("of the time waiting for data", in_percent(run.wait_share)),
            ("for all epochs", in_seconds(run.total_seconds) if run.total_seconds else MISSING),
        ]
    )


def draw_runs(runs: Sequence[Run]) -> str:
    """All sections; those without data are left out."""
    if not runs:
        return ""
    parts = parts_chart(runs)
    left = [draw_line_figure(chart, f"hmean-{at}") for at, chart in enumerate(hmean_charts(runs))]
    left += [draw_figure(parts, "parts")] if parts.rows else []
    right = [draw_line_figure(chart, f"curve-{at}") for at, chart in enumerate(other_charts(runs))]
    return "".join(
        (
            section("Training", columns(left, right) + _runs_table(runs)),
            section("Hardest pages", _hardest(runs)),
            section("Settings", _settings(runs)),
            section("Every epoch", "".join(_folded(f"{run.name}: all epochs", _epochs_table(run)) for run in runs)),
        )
    )


def _runs_table(runs: Sequence[Run]) -> str:
    """The outcome of each run, best first."""
    head = ["run", "H-mean", "at IoU 0.7", "precision", "recall", "best epoch", "epochs", "loss"]
    head += ["samples/s", "waiting", "time", "checkpoints"]
    body = []
    for run in sorted(runs, key=lambda run: -(number(run.best, "hmean") or 0.0)):
        scores = [score(run.best, figure) for figure in ("hmean", "hmean_70", "precision", "recall")]
        kept = [f"{words(one, 'name')} {in_bytes(number(one, 'bytes'))}" for one in objects(run.found, "checkpoints")]
        planned = number(run.found, "max_epochs")
        done = in_count(run.trained) + (f" of {in_count(planned)}" if planned and planned > 0 else "")
        speed = [in_count(run.samples_per_s), in_percent(run.wait_share), in_seconds(run.total_seconds)]
        best = in_count(number(run.best, "epoch"))
        body.append([run.name, *scores, best, done, in_loss(run.last_loss), *speed, ", ".join(kept)])
    return draw_table("Runs, best first" if len(runs) > 1 else "The run", head, body, range(1, 11), "runs")


def _hardest(runs: Sequence[Run]) -> str:
    kept = [run for run in runs if objects(run.found, "hardest")]
    without = [run.name for run in runs if run not in kept]
    note = f"<p>No list of pages (worst_pages.json) in {escape(', '.join(without))}.</p>" if without else ""
    if len(kept) > 1:
        return note + _hardest_of_all(kept)
    return note + "".join(_hardest_of(run) for run in kept)


def _hardest_of(run: Run) -> str:
    pages = objects(run.found, "hardest")
    head = ["page", "H-mean", "at IoU 0.7", "missed", "false", "epoch"]
    body = [
        [
            words(page, "page"),
            score(page, "hmean"),
            score(page, "hmean_70"),
            *(in_count(number(page, figure)) for figure in ("missed", "false", "epoch")),
        ]
        for page in pages[:MAX_HARDEST]
    ]
    return draw_table(_worst_of(len(pages)), head, body, range(1, 6))


def _hardest_of_all(runs: Sequence[Run]) -> str:
    """The H-mean of each page in each run that lists it, the lowest first."""
    scores: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        for page in objects(run.found, "hardest"):
            scores.setdefault(words(page, "page"), {})[run.name] = page
    lowest = sorted(scores, key=lambda page: min(number(one, "hmean") or 0.0 for one in scores[page].values()))
    body = [[page, *(score(scores[page].get(run.name, {}), "hmean") for run in runs)] for page in lowest[:MAX_HARDEST]]
    head = ["page", *(f"H-mean in {run.name}" for run in runs)]
    return draw_table(_worst_of(len(lowest)), head, body, range(1, len(head)))


def _worst_of(count: int) -> str:
    return f"The {MAX_HARDEST} worst of {count} listed pages" if count > MAX_HARDEST else "Worst first"


def _settings(runs: Sequence[Run]) -> str:
    """What differs between the runs, and all settings of each, folded."""
    known = [run for run in runs if run.settings]
    without = [run.name for run in runs if run not in known]
    note = f"<p>No settings (.hydra/config.yaml) in {escape(', '.join(without))}.</p>" if without else ""
    every = "".join(_folded(f"{run.name}: all {len(run.settings)} settings", _settings_table([run])) for run in known)
    if len(known) < 2:
        return note + every
    differing = _settings_table(known, differing=True)
    return note + (differing or "<p>All settings are the same.</p>") + every


def _settings_table(runs: Sequence[Run], differing: bool = False) -> str:
    names = dict.fromkeys(name for run in runs for name in run.settings)
    body = []
    for name in names:
        values = [words(run.settings, name) if name in run.settings else MISSING for run in runs]
        if not differing or (len(set(values)) > 1 and name not in IDENTITIES):
            body.append([_breakable(words({"": name}, "")), *map(_breakable, values)])
    head = ["setting", *(run.name if len(runs) > 1 else "value" for run in runs)]
    return draw_table("Settings that differ" if differing else "Settings", head, body, (), "settings") if body else ""


def _breakable(text: str) -> Ready:
    """Code that may wrap after a dot, a slash or an underscore."""
    shown = escape(text)
    for mark in "./_":
        shown = shown.replace(mark, f"{mark}<wbr>")
    return Ready(f"<code>{shown}</code>")


def _epochs_table(run: Run) -> str:
    head = ["epoch", "H-mean", "at IoU 0.7", "precision", "recall", "samples/s", "waiting", "time"]
    waits, body = dict(run.wait_shares), []
    for epoch in run.epochs:
        at = number(epoch, "epoch")
        scores = [score(epoch, figure) for figure in ("hmean", "hmean_70", "precision", "recall")]
        seconds = sum(value for value in (epoch.get("seconds") or {}).values())
        wait = in_percent(waits.get((at or 0.0) + 1))
        body.append(
            [in_count(at), *scores, in_count(number(epoch, "samples_per_s")), wait, in_seconds(seconds or None)]
        )
    return draw_table(f"Epochs of {run.name}", head, body, range(1, 8)) if body else ""


def _folded(title: str, body: str) -> str:
    """Shown when it is opened, by mouse or keyboard."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if body else ""
