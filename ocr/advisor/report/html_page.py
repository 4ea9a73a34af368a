"""The report: runs, and results of profile, bench and advise, as one HTML file without scripts or other files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ocr.advisor.report import charts, timeline
from ocr.advisor.report import html_tables as tables
from ocr.advisor.report.html_parts import card, columns, section, tiles
from ocr.advisor.report.line_chart import draw_line_figure
from ocr.advisor.report.number_format import in_bytes, in_count, in_digits, in_percent, in_seconds, in_times
from ocr.advisor.report.result_fields import number, objects, part, texts, words
from ocr.advisor.report.run_figures import WAIT_WORTH_A_REMEDY, Run, name_runs, verdict_of_runs
from ocr.advisor.report.run_sections import draw_run_tiles, draw_runs
from ocr.advisor.report.style import STYLE
from ocr.advisor.report.svg_chart import ALL_WIDTHS, Chart, draw_figure
from ocr.atomic import replacing

Found = Mapping[str, Any]

# The first of them gives the verdict of the page.
ORDER = ("advice", "profile", "bench")
# As in the advice: a smaller gain is within the noise.
WORTH_A_TRIAL = 1.05
_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@]*=")


def write_report(results: Sequence[Found], path: Path) -> None:
    """Write the page, completely or not at all."""
    with replacing(path) as stream:
        stream.write(render_report(results).encode())


def render_report(results: Sequence[Found]) -> str:
    """The page as text."""
    runs = name_runs([found for found in results if found["kind"] == "run"])
    ordered = sorted((one for one in results if one["kind"] != "run"), key=lambda one: ORDER.index(one["kind"]))
    sentence, state = verdict_of_runs(runs) if runs else verdict_of(ordered[0])
    sources = "".join(f"<p>{_source_of_run(run)}</p>" for run in runs)
    sources += "".join(f"<p>{_source(found)}{_origin(found)}</p>" for found in ordered)
    sections = "".join(
        (
            draw_runs(runs),
            _section("Where the time goes", ordered, _where_time_goes),
            _section("One epoch by thread", ordered, _by_thread),
            _section("What would help", ordered, _what_helps),
            _section("Predicted against measured", ordered, _predicted),
            _section("Configurations side by side", ordered, _side_by_side),
            _machines(ordered),
            _commands([*(run.found for run in runs), *ordered]),
        )
    )
    name = ", ".join(run.name for run in runs) or Path(words(part(ordered[0], "data"), "place")).name
    figures = draw_run_tiles(runs) if runs else _tiles(ordered[0])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>ocr report: {escape(name)}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>ocr report</h1>"
        f'<p class="verdict {state}">{escape(sentence)}</p>{figures}'
        f'<div class="sources">{sources}</div></header>'
        f"<main>{sections}</main></body></html>\n"
    )


def verdict_of(found: Found) -> tuple[str, str]:
    """A result in one sentence, and whether that is good (ok), bad (wrong) or neither (plain)."""
    if found["kind"] == "advice":
        present = part(found, "present")
        wait = number(present, "wait_share")
        sentence = words(present, "sentence") or f"{words(present, 'bottleneck')} is the bottleneck"
        return sentence, "plain" if wait is None else "wrong" if wait > WAIT_WORTH_A_REMEDY else "ok"
    if found["kind"] == "profile":
        return words(found, "sentence") or f"{words(found, 'slowest')} is the slowest stage", "plain"
    ran = [row for row in objects(found, "configurations") if number(row, "median_s") and not row.get("skipped")]
    if not ran:
        return "No configuration could run", "wrong"
    best, baseline = min(ran, key=lambda row: row["median_s"]), words(found, "baseline")
    base = next((row["median_s"] for row in ran if words(row, "name") == baseline), None)
    sentence = f"{words(best, 'name')} is the fastest, with {in_seconds(best['median_s'])} per epoch"
    if base and words(best, "name") != baseline:
        sentence += f": {in_times(base / best['median_s'])} as fast as {baseline}, which takes {in_seconds(base)}"
    return sentence, "plain"


def _source(found: Found) -> str:
    """Which result, of which pages."""
    data = part(found, "data")
    pages = number(data, "pages")
    of = " of ".join(filter(None, [f"<b>{escape(found['kind'].capitalize())}</b>", escape(words(data, "split"))]))
    return of if pages is None else f"{of}, {in_count(pages)} {words(data, 'units') or 'pages'}"


def _source_of_run(run: Run) -> str:
    """Which run, of which pages, and when it last wrote its metrics."""
    place, made = words(part(run.found, "data"), "place"), _when(run.found)
    pages = f" on <code>{escape(place)}</code>" if place else ""
    return f"<b>Run</b> {escape(run.name)}: {in_count(run.trained)} epochs{pages}, last written {made}"


def _origin(found: Found) -> str:
    """Where the pages are, and when and by which version the result was made."""
    place, made = words(part(found, "data"), "place"), _when(found)
    shown = f" in <code>{escape(place)}</code>" if place else ""
    return f"{shown}, made {made} by GlyphFeed {escape(words(found, 'glyphfeed'))}" if made else shown


def _when(found: Found) -> str:
    return escape(words(found, "made").replace("T", " ").replace("Z", " UTC"))


def _tiles(found: Found) -> str:
    """The most important figures."""
    facts: list[tuple[str, str]] = []
    if found["kind"] == "advice":
        present, best = part(found, "present"), first_remedy(found)
        facts = [
            ("samples per second now", in_count(number(present, "samples_per_s"))),
            ("per epoch now", in_seconds(number(present, "epoch_s"))),
            ("of the time waiting for data", in_percent(number(present, "wait_share"))),
            (f"with {words(best, 'name')}", in_times(number(best, "gain"))),
        ]
    elif found["kind"] == "profile":
        slowest = next((s for s in objects(found, "stages") if words(s, "name") == words(found, "slowest")), {})
        facts = [(name, _in_ms(part(part(found, "whole"), name), "mean_ms")) for name in part(found, "whole")]
        facts = [(f"per page, {words({'': name}, '')}", value) for name, value in facts]
        facts.append((f"of it in {words(slowest, 'name')}", in_percent(number(slowest, "share"))))
    return tiles(facts)


def _in_ms(found: Found, key: str) -> str:
    value = number(found, key)
    return "–" if value is None else f"{in_digits(value)} ms"


def _section(title: str, results: Sequence[Found], draw: Callable[[Found, str], str]) -> str:
    """One section with a part for each result; empty if no result has one."""
    name = title.split()[0].lower()
    drawn = [(found, draw(found, f"{name}-{at}")) for at, found in enumerate(results)]
    drawn = [(found, text) for found, text in drawn if text]
    source = '<p class="source">{}</p>'.format if len(results) > 1 else "".format
    body = "".join(source(_source(found)) + text for found, text in drawn)
    return section(title, body)


def _figures(drawn: Sequence[Chart], name: str) -> list[str]:
    return [draw_figure(chart, f"{name}-{at}") for at, chart in enumerate(drawn)]


def _where_time_goes(found: Found, name: str) -> str:
    if found["kind"] == "profile":
        left, right = charts.charts_of_profile(found)
        return columns(_figures(left, f"{name}-left"), _figures(right, f"{name}-right")) + tables.stages_table(found)
    measured = part(found, "measured")
    demand = charts.demand_chart(measured)
    disk, copy = number(measured, "disk_bytes_per_s"), number(measured, "copy_bytes_per_s")
    facts = tables.draw_facts(
        [
            ("model, per batch", _in_ms(measured, "step_ms")),
            (
                "batch",
                ""
                if number(measured, "batch_size") is None
                else f"{words(measured, 'batch_size')} {words(part(found, 'data'), 'units') or 'pages'}",
            ),
            ("workers", in_count(number(measured, "workers"))),
            ("cores", in_count(number(measured, "cores"))),
            ("disk", "" if disk is None else f"{in_bytes(disk)}/s"),
            ("memory copies", "" if copy is None else f"{in_bytes(copy)}/s"),
        ]
    )
    first = [draw_figure(demand, name)] if demand.rows else []
    return columns(first, [card("Measured for the prediction", facts)])


def _by_thread(found: Found, name: str) -> str:
    pieces = timeline.read_pieces(found)
    if not pieces:
        return ""
    drawn = [
        draw_figure(chart, f"{name}-{at}", ALL_WIDTHS) for at, chart in enumerate(timeline.timeline_charts(pieces))
    ]
    memory = timeline.memory_chart(found)
    beside = [draw_line_figure(memory, f"{name}-memory")] if memory.lines else []
    return columns(drawn) + columns(beside, [timeline.pieces_table(pieces)])


def _what_helps(found: Found, name: str) -> str:
    chart = charts.epochs_chart(found)
    if not chart.rows:
        return ""
    present, best = part(found, "present"), first_remedy(found)
    today = tables.draw_facts(
        [
            ("bottleneck", words(present, "bottleneck")),
            ("samples per second", in_count(number(present, "samples_per_s"))),
            ("epoch", in_seconds(number(present, "epoch_s"))),
            ("run", in_seconds(number(present, "run_s"))),
            ("memory of a step", in_bytes(number(present, "memory_bytes"))),
            ("waiting for data", in_percent(number(present, "wait_share"))),
        ]
    )
    first = "".join(map(_command, _commands_of(found, best)))
    first = f"<p>{escape(words(best, 'name'))}: {escape(words(best, 'reason'))}</p>{first}" if best else ""
    left_out = "".join(
        f"<p>{escape(words({'': name}, ''))}: {escape(words(part(found, 'left_out'), name))}</p>"
        for name in part(found, "left_out")
    )
    cards = [card("Now", today), card("Try first", first), card("Left out", left_out)]
    return columns([draw_figure(chart, name)], cards) + tables.remedies_table(found)


def _predicted(found: Found, name: str) -> str:
    chart = charts.verified_chart(found)
    if not chart.rows:
        return ""
    return columns([draw_figure(chart, name)], [tables.verified_table(found)])


def _side_by_side(found: Found, name: str) -> str:
    return columns(*([figure] for figure in _figures(charts.bench_charts(found), name))) + tables.bench_table(found)


def _machines(results: Sequence[Found]) -> str:
    """The caches, and each machine once: free memory and disk differ between runs on the same machine."""
    machines: dict[str, tuple[Found, list[str]]] = {}
    for found in results:
        machine = part(found, "machine")
        lasting = repr(sorted((key, repr(value)) for key, value in machine.items() if not key.startswith("free_")))
        machines.setdefault(lasting, (machine, []))[1].append(found["kind"])
    several = len(machines) > 1
    cards = [
        card(f"Machine of {', '.join(kinds)}" if several else "This machine", tables.machine_facts(machine))
        for machine, kinds in machines.values()
    ]
    caches = [tables.cache_table(found) for found in results]
    note = (
        "<p>The results come from different machines: compare figures of the same machine only.</p>" if several else ""
    )
    title = " and ".join(["Cache"] * any(caches) + ["machine"] * any(cards)).capitalize()
    return section(title, note + columns(caches, cards)) if title else ""


def _commands(results: Sequence[Found]) -> str:
    commands = [words(found, "command") for found in results]
    commands += [command for found in results for command in _commands_of(found, first_remedy(found))]
    drawn = "".join(_command(command) for command in dict.fromkeys(commands) if command)
    return section("Commands", drawn)


def _command(command: str) -> str:
    return f'<pre tabindex="0"><code>{escape(command)}</code></pre>' if command else ""


def first_remedy(found: Found) -> Found:
    """The remedy to try first: the best without preparation, else the best; empty if none is worthwhile.

    Those after which the model learns something else are the user's choice.
    """
    same = [remedy for remedy in objects(found, "remedies") if words(remedy, "hmean") in ("", "same")]
    useful = [remedy for remedy in same if (number(remedy, "gain") or 0) > WORTH_A_TRIAL]
    named = words(found, "best")
    if named:
        return next((remedy for remedy in useful if words(remedy, "name") == named), {})
    return next((remedy for remedy in useful if not words(remedy, "command")), next(iter(useful), {}))


def _commands_of(found: Found, remedy: Found) -> list[str]:
    """The commands that prepare a remedy and train with it, on the data of the result."""
    try:
        given = [text for text in shlex.split(words(found, "command")) if _SETTING.match(text)]
    except ValueError:
        given = []
    chosen = texts(remedy, "overrides")
    if not words(found, "command").startswith("ocr "):
        return ["\n".join(chosen)]  # Of a loader of the user's own, in Python.
    changed = {text.partition("=")[0] for text in chosen}
    given = [text for text in given if text.partition("=")[0] not in changed]
    train = shlex.join(["ocr", "train", *given, *chosen]) if chosen else ""
    return [command for command in (words(remedy, "command"), train) if command]
