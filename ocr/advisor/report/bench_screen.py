"""The benchmark on the screen, and as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ocr.advisor.catalogue import Configuration
from ocr.advisor.measure.bench import BenchResult, Measurement
from ocr.advisor.measure.bench_epochs import bench_overrides
from ocr.advisor.measure.other_processes import warning
from ocr.advisor.report.number_format import MISSING, in_bytes, in_percent, in_seconds, in_times
from ocr.atomic import replacing
from ocr.csv_cells import plain_cell

PLAIN: Any = {"highlight": False, "soft_wrap": True}
PREPARED = ("maps", "raw", "ready")


def print_result(found: BenchResult, split: str, rounds: int, console: Console) -> None:
    """One row per configuration, then those that could not run, and why."""
    of = f"{found.pages}" if found.pages == found.all_pages else f"{found.pages} of {found.all_pages}"
    turns = f"{rounds} rounds in turns" if rounds > 1 else "one round"
    console.print(f"{escape(split)}: {of} pages of {escape(found.location)}, {turns}", **PLAIN)
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("configuration", overflow="fold")
    for heading in ("first", "later", "spread", "CPU", "pages/s", "speed", "memory", "stored"):
        table.add_column(heading, justify="right", no_wrap=True)
    ran = [one for one in found.measurements if one.skipped is None]
    for one in ran:
        table.add_row(escape(one.name), *_cells(one, _reference(one, ran, found.baseline)))
    console.print(table, highlight=False)
    note = f"speed: compared with {found.baseline}; CPU: of a later epoch, summed over all cores"
    console.print(escape(note), **PLAIN)
    made = [f"{one.name} in {in_seconds(one.prepare_s)}" for one in ran if one.configuration.needs in PREPARED]
    if made:
        console.print(f"prepared once: {escape(', '.join(made))}", **PLAIN)
    if busy := warning(found.others_share):
        console.print(f"[yellow]{busy}[/]", **PLAIN)
    for one in found.measurements:
        if one.skipped is not None:
            console.print(f"[yellow]{escape(one.name)}[/] was skipped: {escape(one.skipped)}", **PLAIN)


def _reference(one: Measurement, ran: list[Measurement], baseline: str) -> Measurement:
    """What a configuration is compared with; a validation with the model only with another one."""
    if one.configuration.needs == "model":
        return next(other for other in ran if other.configuration.needs == "model")
    return next(other for other in ran if other.name == baseline)


def _cells(one: Measurement, reference: Measurement) -> list[str]:
    speed = one.pages_per_s / reference.pages_per_s if one.pages_per_s and reference.pages_per_s else None
    return [
        in_seconds(one.first_s),
        in_seconds(one.median_s),
        in_percent(one.spread),
        in_seconds(one.cpu_s),
        MISSING if one.pages_per_s is None else f"{one.pages_per_s:,.0f}",
        in_times(speed),
        in_bytes(one.memory_bytes),
        in_bytes(one.stored_bytes) if one.stored_bytes else "",
    ]


def print_configurations(listed: list[Configuration], split: str, console: Console) -> None:
    """What `--only` can name."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "what it is", "overrides"):
        table.add_column(heading, overflow="fold")
    for configuration in listed:
        overrides = " ".join(bench_overrides(configuration, split))
        table.add_row(escape(configuration.name), escape(configuration.about), escape(overrides))
    console.print(table, highlight=False)


def write_csv(found: BenchResult, path: Path) -> None:
    """One line per configuration; lists are joined by spaces."""
    text = io.StringIO(newline="")
    records = [one.to_dict() for one in found.measurements]
    writer = csv.DictWriter(text, list(records[0]))
    writer.writeheader()
    for record in records:
        joined = {name: " ".join(map(str, value)) for name, value in record.items() if isinstance(value, list)}
        texts = {name: plain_cell(value) for name, value in record.items() if isinstance(value, str)}
        writer.writerow(record | joined | texts)
    with replacing(path) as stream:
        stream.write(text.getvalue().encode())
