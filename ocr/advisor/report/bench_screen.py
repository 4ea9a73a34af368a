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
from ocr.advisor.measure.bench import Result, Row
from ocr.advisor.report.number_format import MISSING, in_bytes, in_percent, in_seconds, in_times
from ocr.atomic import replacing

PLAIN: Any = {"highlight": False, "soft_wrap": True}
BUSY = 0.1
MADE = ("maps", "raw", "ready")


def print_result(found: Result, split: str, rounds: int, console: Console) -> None:
    """A row a configuration, then those that could not run and why."""
    of = f"{found.pages}" if found.pages == found.all_pages else f"{found.pages} of {found.all_pages}"
    turns = f"{rounds} rounds in turns" if rounds > 1 else "one round"
    console.print(f"{escape(split)}: {of} pages of {escape(found.place)}, {turns}", **PLAIN)
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("configuration", overflow="fold")
    for heading in ("first", "later", "spread", "CPU", "pages/s", "times", "memory", "stored"):
        table.add_column(heading, justify="right", no_wrap=True)
    ran = [row for row in found.rows if row.skipped is None]
    for row in ran:
        table.add_row(escape(row.name), *_cells(row, _reference(row, ran, found.baseline)))
    console.print(table, highlight=False)
    console.print(f"times: as fast as {escape(found.baseline)}; CPU: of a later epoch, on all cores", **PLAIN)
    made = [f"{row.name} in {in_seconds(row.prepare_s)}" for row in ran if row.configuration.needs in MADE]
    if made:
        console.print(f"written once, ahead: {escape(', '.join(made))}", **PLAIN)
    if found.others_share is not None and found.others_share > BUSY:
        busy = (
            f"other programs had {found.others_share:.0%} of the cores meanwhile: figures would be better without them"
        )
        console.print(f"[yellow]{busy}[/]", **PLAIN)
    for row in found.rows:
        if row.skipped is not None:
            console.print(f"[yellow]{escape(row.name)}[/] is left out: {escape(row.skipped)}", **PLAIN)


def _reference(row: Row, ran: list[Row], baseline: str) -> Row:
    """What a row is compared with; validation with the model only with its like."""
    if row.configuration.needs == "model":
        return next(one for one in ran if one.configuration.needs == "model")
    return next(one for one in ran if one.name == baseline)


def _cells(row: Row, reference: Row) -> list[str]:
    speed = row.pages_per_s / reference.pages_per_s if row.pages_per_s and reference.pages_per_s else None
    return [
        in_seconds(row.first_s),
        in_seconds(row.median_s),
        in_percent(row.spread),
        in_seconds(row.cpu_s),
        MISSING if row.pages_per_s is None else f"{row.pages_per_s:,.0f}",
        in_times(speed),
        in_bytes(row.memory_bytes),
        in_bytes(row.stored_bytes) if row.stored_bytes else "",
    ]


def print_configurations(listed: list[Configuration], split: str, console: Console) -> None:
    """What `--only` can name."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "what it is", "as"):
        table.add_column(heading, overflow="fold")
    for configuration in listed:
        overrides = " ".join(configuration.overrides_of(split))
        table.add_row(escape(configuration.name), escape(configuration.about), escape(overrides))
    console.print(table, highlight=False)


def write_csv(found: Result, path: Path) -> None:
    """A line a configuration; lists are joined by blanks."""
    text = io.StringIO(newline="")
    records = [row.to_dict() for row in found.rows]
    writer = csv.DictWriter(text, list(records[0]))
    writer.writeheader()
    for record in records:
        joined = {name: " ".join(map(str, value)) for name, value in record.items() if isinstance(value, list)}
        writer.writerow(record | joined)
    with replacing(path) as stream:
        stream.write(text.getvalue().encode())
