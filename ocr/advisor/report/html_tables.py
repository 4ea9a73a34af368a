"""The tables of the report: all figures, including those that no chart shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from ocr.advisor.report.charts import error_of
from ocr.advisor.report.number_format import (
    MISSING,
    in_bytes,
    in_count,
    in_digits,
    in_ms,
    in_percent,
    in_seconds,
    in_times,
)
from ocr.advisor.report.result_fields import number, objects, texts, words

Found = Mapping[str, Any]


class Ready(str):
    """Text that is HTML already; any other text is escaped."""


def html_of(text: str) -> str:
    """Text as HTML."""
    return text if isinstance(text, Ready) else escape(text)


def draw_table(
    caption: str, head: Sequence[str], body: Sequence[Sequence[str]], numbers: Collection[int], kind: str = ""
) -> str:
    """A table that scrolls if it is wider than the screen; the first cell of a row is its heading."""

    def cell(tag: str, text: str, at: int) -> str:
        number = ' class="number"' if at in numbers else ""
        return f"<{tag}{number}>{html_of(text)}</{tag.split()[0]}>"

    top = "".join(cell('th scope="col"', text, at) for at, text in enumerate(head))
    lines = (
        "<tr>" + "".join(cell("td" if at else 'th scope="row"', text, at) for at, text in enumerate(row)) + "</tr>"
        for row in body
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table class="{kind}">'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def draw_facts(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values; names without a value are left out."""
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{html_of(value)}</dd></div>"
        for name, value in facts
        if value not in ("", MISSING)
    )
    return f'<dl class="facts">{shown}</dl>' if shown else ""


def draw_code(lines: Sequence[str]) -> Ready:
    """Settings, one per line, which may wrap after a dot or an equals sign."""
    broken = (escape(line).replace(".", ".<wbr>").replace("=", "=<wbr>") for line in lines)
    return Ready("".join(f"<code>{line}</code>" for line in broken))


def stages_table(found: Found) -> str:
    """All measurements of each stage, in milliseconds per page."""
    head = ["stage", "kind", "calls", "mean ms", "std", "min", "max", "share"]
    head += ["CPU ms", "queued ms", "bytes out", "page faults"]
    body = []
    for stage in objects(found, "stages"):
        name = Ready(f"{escape(words(stage, 'name'))}<small>{escape(words(stage, 'label'))}</small>")
        times = [in_ms(number(stage, key)) for key in ("mean_ms", "std_ms", "min_ms", "max_ms")]
        cpu = [in_ms(number(stage, key)) for key in ("cpu_ms", "queued_ms")]
        out = [in_bytes(number(stage, "bytes_out")), in_count(number(stage, "page_faults"))]
        share, calls = in_percent(number(stage, "share")), in_count(number(stage, "calls"))
        body.append([name, words(stage, "kind"), calls, *times, share, *cpu, *out])
    return draw_table("All stages", head, body, range(2, 12)) if body else ""


def remedies_table(found: Found) -> str:
    """All remedies, best first, with their cost and the reason."""
    head = ["remedy", "gain", "samples/s", "epoch", "first epoch", "RAM", "disk", "pays off after", "why"]
    of_the_run = ["run", "memory of a step", "H-mean"] if _has_runs(found) else []
    head[5:5] = of_the_run
    body = []
    for rank, remedy in enumerate(objects(found, "remedies"), 1):
        badge = ' <span class="badge">combined</span>' if remedy.get("combined") else ""
        settings = draw_code([*filter(None, [words(remedy, "command")]), *texts(remedy, "overrides")])
        name = Ready(f"{rank}. {escape(words(remedy, 'name'))}{badge}<small>{settings}</small>")
        run = [in_seconds(number(remedy, "run_s")), in_bytes(number(remedy, "memory_bytes")), words(remedy, "hmean")]
        body.append(
            [
                name,
                in_times(number(remedy, "gain")) if remedy.get("fits") is not False else "does not fit",
                in_count(number(remedy, "samples_per_s")),
                in_seconds(number(remedy, "epoch_s")),
                in_seconds(number(remedy, "first_epoch_s")),
                *run[: len(of_the_run)],
                in_bytes(number(remedy, "ram_bytes")) if remedy.get("ram_bytes") != 0 else "none",
                in_bytes(number(remedy, "disk_bytes")) if remedy.get("disk_bytes") != 0 else "none",
                pays_off(number(remedy, "payback_epochs")),
                words(remedy, "reason"),
            ]
        )
    texts_at = {head.index("why"), *([head.index("H-mean")] if of_the_run else [])}
    numbers = set(range(1, len(head))) - texts_at
    return draw_table("Remedies, best first", head, body, numbers, "remedies") if body else ""


def _has_runs(found: Found) -> bool:
    return any(number(remedy, "run_s") is not None for remedy in objects(found, "remedies"))


def pays_off(epochs: float | None) -> str:
    """After how many epochs a remedy has made up for its slower first epoch."""
    if epochs is None:
        return "never"
    if epochs <= 0:
        return "at once"
    return "1 epoch" if epochs == 1 else f"{in_digits(epochs, 2)} epochs"


def verified_table(found: Found) -> str:
    """Predictions beside their measurements."""
    body = [
        [
            words(check, "name"),
            in_seconds(number(check, "predicted_s")),
            in_seconds(number(check, "measured_s")),
            in_percent(error_of(check), signed=True),
        ]
        for check in objects(found, "verified")
    ]
    return draw_table("Verified predictions", ["configuration", "predicted", "measured", "error"], body, range(1, 4))


def bench_table(found: Found) -> str:
    """Every configuration, including those that could not run."""
    head = ["configuration", "split", "workers", "first epoch", "median", "spread", "pages/s", "memory", "speed"]
    configurations, baseline = objects(found, "configurations"), words(found, "baseline")
    base = next((number(row, "median_s") for row in configurations if words(row, "name") == baseline), None)
    body = []
    for row in configurations:
        median = number(row, "median_s")
        settings = draw_code(texts(row, "overrides"))
        speed = in_times(base / median) if base and median else MISSING
        times = [in_seconds(number(row, "first_s")), in_seconds(median), in_percent(number(row, "spread"))]
        if skipped := words(row, "skipped"):
            settings = Ready(f"{settings}<span>skipped: {escape(skipped)}</span>")
        body.append(
            [
                Ready(f"{escape(words(row, 'name'))}<small>{settings}</small>"),
                words(row, "split"),
                in_count(number(row, "workers")),
                *times,
                in_count(number(row, "pages_per_s")),
                in_bytes(number(row, "memory_bytes")),
                "baseline" if words(row, "name") == baseline else speed,
            ]
        )
    head[-1] = f"speed against {baseline}" if baseline else head[-1]
    return draw_table("All configurations", head, body, range(2, 9)) if body else ""


def cache_table(found: Found) -> str:
    """What is cached of each dataset, and how often it was hit."""
    head = ["dataset", "pages cached", "on disk", "hits", "misses"]
    body = []
    for cache in objects(found, "cache"):
        covers = number(cache, "covers")
        meter = "" if covers is None else f'<meter value="{covers:.4f}" aria-hidden="true"></meter> '
        counts = [in_count(number(cache, "hits")), in_count(number(cache, "misses"))]
        share = Ready(f"{meter}{in_percent(covers)}")
        body.append([words(cache, "split"), share, in_bytes(number(cache, "bytes")), *counts])
    return draw_table("Caches", head, body, range(1, 5)) if body else ""


def machine_facts(machine: Found) -> str:
    """What the figures depend on besides the code."""
    libraries = machine.get("libraries")
    known = libraries if isinstance(libraries, Mapping) else {}
    memory = f"{in_bytes(number(machine, 'memory_bytes'))}, {in_bytes(number(machine, 'free_memory_bytes'))} free"
    return draw_facts(
        [
            ("processor", words(machine, "processor")),
            ("cores", in_count(number(machine, "cores"))),
            ("memory", memory if number(machine, "memory_bytes") else ""),
            ("free disk", in_bytes(number(machine, "free_disk_bytes"))),
            ("device", words(machine, "device")),
            ("system", words(machine, "system")),
            ("libraries", ", ".join(f"{words({'': name}, '')} {words(known, name)}" for name in known)),
        ]
    )
