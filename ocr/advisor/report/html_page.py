"""The report: results of profile, bench and advise as one HTML file without scripts or other files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ocr.advisor.report import charts
from ocr.advisor.report import html_tables as tables
from ocr.advisor.report.number_format import in_bytes, in_count, in_digits, in_percent, in_seconds, in_times
from ocr.advisor.report.result_fields import number, objects, part, texts, words
from ocr.advisor.report.style import STYLE
from ocr.advisor.report.svg_chart import Chart, draw_figure
from ocr.atomic import replacing

Found = Mapping[str, Any]

# The first of them gives the verdict of the page.
ORDER = ("advice", "profile", "bench")
# If the model waits less, faster loading is not worth the effort.
WAIT_WORTH_A_REMEDY = 0.1
# As in the advice: a smaller gain is within the noise.
WORTH_A_TRIAL = 1.05
_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@]*=")


def write_report(results: Sequence[Found], path: Path) -> None:
    """Write the page, completely or not at all."""
    with replacing(path) as stream:
        stream.write(render_report(results).encode())


def render_report(results: Sequence[Found]) -> str:
    """The page as text."""
    ordered = sorted(results, key=lambda found: ORDER.index(found["kind"]))
    sentence, state = verdict_of(ordered[0])
    sources = "".join(f"<p>{_source(found)}{_origin(found)}</p>" for found in ordered)
    sections = "".join(
        (
            _section("Where the time goes", ordered, _where_time_goes),
            _section("What would help", ordered, _what_helps),
            _section("Predicted against measured", ordered, _predicted),
            _section("Configurations side by side", ordered, _side_by_side),
            _machines(ordered),
            _commands(ordered),
        )
    )
    name = Path(words(part(ordered[0], "data"), "place")).name
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>ocr report: {escape(name)}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>ocr report</h1>"
        f'<p class="verdict {state}">{escape(sentence)}</p>{_tiles(ordered[0])}'
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
    return of if pages is None else f"{of}, {in_count(pages)} pages"


def _origin(found: Found) -> str:
    """Where the pages are, and when and by which version the result was made."""
    place, made = words(part(found, "data"), "place"), words(found, "made").replace("T", " ").replace("Z", " UTC")
    shown = f" in <code>{escape(place)}</code>" if place else ""
    return f"{shown}, made {escape(made)} by GlyphFeed {escape(words(found, 'glyphfeed'))}" if made else shown


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
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts if value != "–"
    )
    return f'<dl class="tiles">{shown}</dl>' if shown else ""


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
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _columns(*columns: Sequence[str]) -> str:
    """Stacked cards in columns; empty columns are left out."""
    filled = [f'<div class="stack">{"".join(column)}</div>' for column in columns if any(column)]
    return f'<div class="columns n{len(filled)}">{"".join(filled)}</div>' if filled else ""


def _figures(drawn: Sequence[Chart], name: str) -> list[str]:
    return [draw_figure(chart, f"{name}-{at}") for at, chart in enumerate(drawn)]


def _card(title: str, body: str) -> str:
    return f'<div class="card"><h3>{escape(title)}</h3>{body}</div>' if body else ""


def _where_time_goes(found: Found, name: str) -> str:
    if found["kind"] == "profile":
        left, right = charts.charts_of_profile(found)
        return _columns(_figures(left, f"{name}-left"), _figures(right, f"{name}-right")) + tables.stages_table(found)
    left, right = charts.charts_of_measurement(found)
    measured = part(found, "measured")
    disk, copy = number(measured, "disk_bytes_per_s"), number(measured, "copy_bytes_per_s")
    facts = tables.draw_facts(
        [
            ("model, per batch", _in_ms(measured, "step_ms")),
            ("batch", "" if number(measured, "batch_size") is None else f"{words(measured, 'batch_size')} pages"),
            ("workers", in_count(number(measured, "workers"))),
            ("cores", in_count(number(measured, "cores"))),
            ("disk", "" if disk is None else f"{in_bytes(disk)}/s"),
            ("memory copies", "" if copy is None else f"{in_bytes(copy)}/s"),
        ]
    )
    second = [*_figures(right, f"{name}-right"), _card("Measured for the prediction", facts)]
    return _columns(_figures(left, f"{name}-left"), second)


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
            ("waiting for data", in_percent(number(present, "wait_share"))),
        ]
    )
    first = "".join(map(_command, _commands_of(found, best)))
    first = f"<p>{escape(words(best, 'name'))}: {escape(words(best, 'reason'))}</p>{first}" if best else ""
    cards = [_card("Now", today), _card("Try first", first)]
    return _columns([draw_figure(chart, name)], cards) + tables.remedies_table(found)


def _predicted(found: Found, name: str) -> str:
    chart = charts.verified_chart(found)
    if not chart.rows:
        return ""
    return _columns([draw_figure(chart, name)], [tables.verified_table(found)])


def _side_by_side(found: Found, name: str) -> str:
    return _columns(*([figure] for figure in _figures(charts.bench_charts(found), name))) + tables.bench_table(found)


def _machines(results: Sequence[Found]) -> str:
    """The caches, and each machine once: free memory and disk differ between runs on the same machine."""
    machines: dict[str, tuple[Found, list[str]]] = {}
    for found in results:
        machine = part(found, "machine")
        lasting = repr(sorted((key, repr(value)) for key, value in machine.items() if not key.startswith("free_")))
        machines.setdefault(lasting, (machine, []))[1].append(found["kind"])
    several = len(machines) > 1
    cards = [
        _card(f"Machine of {', '.join(kinds)}" if several else "This machine", tables.machine_facts(machine))
        for machine, kinds in machines.values()
    ]
    caches = [tables.cache_table(found) for found in results]
    note = (
        "<p>The results come from different machines: compare figures of the same machine only.</p>" if several else ""
    )
    title = " and ".join(["Cache"] * any(caches) + ["machine"] * any(cards)).capitalize()
    return f"<section><h2>{title}</h2>{note}{_columns(caches, cards)}</section>" if title else ""


def _commands(results: Sequence[Found]) -> str:
    commands = [words(found, "command") for found in results]
    commands += [command for found in results for command in _commands_of(found, first_remedy(found))]
    drawn = "".join(_command(command) for command in dict.fromkeys(commands) if command)
    return f"<section><h2>Commands</h2>{drawn}</section>" if drawn else ""


def _command(command: str) -> str:
    return f'<pre tabindex="0"><code>{escape(command)}</code></pre>' if command else ""


def first_remedy(found: Found) -> Found:
    """The remedy to try first: the best without preparation, else the best; empty if none is worthwhile."""
    useful = [remedy for remedy in objects(found, "remedies") if (number(remedy, "gain") or 0) > WORTH_A_TRIAL]
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
    changed = {text.partition("=")[0] for text in chosen}
    given = [text for text in given if text.partition("=")[0] not in changed]
    train = shlex.join(["ocr", "train", *given, *chosen]) if chosen else ""
    return [command for command in (words(remedy, "command"), train) if command]
