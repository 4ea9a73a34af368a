"""The inspection on a terminal, and as files: JSON, CSV, and Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.atomic import replacing
from ocr.csv_cells import plain_cell
from ocr.inspect.causes import OTHER
from ocr.inspect.compare import Comparison
from ocr.inspect.inspection import Gain, Group, Inspection, page_row
from ocr.report.numbers import in_points, in_score

WORST_PAGES = 5


def show(inspection: Inspection, console: Console) -> None:
    """Scores, causes with what would help, groups, and the worst pages."""
    console.print(scores_table(inspection))
    if inspection.gains:
        console.print(gains_table(inspection.gains))
        errors = len(inspection.errors)
        known = sum(gain.missed + gain.false for gain in inspection.gains if gain.cause != OTHER)
        console.print(Text(f"{known} of {errors} errors have a cause"), soft_wrap=True)
    console.print(groups_table(inspection.groups))
    error = inspection.calibration[1]
    console.print(Text(f"scores of boxes are off by {error:.2f} on average (calibration error)"), soft_wrap=True)
    for page in inspection.worst[:WORST_PAGES]:
        score = f"H-mean {in_score(page.counts.hmean)}, {page.missed} missed, {page.false} false"
        console.print(Text(f"worst: {page.name}: {score}"), soft_wrap=True)


def scores_table(inspection: Inspection) -> Table:
    table = _table(f"{inspection.detector} on {inspection.data}", "score", "precision", "recall", "hmean")
    for name, counts in (("IoU 0.5", inspection.counts), ("IoU 0.7", inspection.tight)):
        table.add_row(name, *(f"{value:.4f}" for value in (counts.precision, counts.recall, counts.hmean)))
    table.add_row("CLEval", *(f"{value:.4f}" for value in inspection.cleval))
    return table


def gains_table(gains: Sequence[Gain]) -> Table:
    table = _table("why, and points of H-mean without these errors", "cause", "missed", "false", "points")
    table.add_column("what would help")
    for gain in gains:
        table.add_row(gain.cause, str(gain.missed), str(gain.false), in_points(gain.points), escape(gain.fix))
    return table


def groups_table(groups: Sequence[Group]) -> Table:
    table = _table("scores by group", "group", "words", "recall", "boxes", "precision")
    last = None
    for group in groups:
        if group.kind != last:
            table.add_section()
            last = group.kind
        name = f"{group.kind}: {group.name}"
        table.add_row(name, str(group.words), in_score(group.recall), str(group.boxes), in_score(group.precision))
    return table


def _table(title: str, first: str, *numbers: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    table.add_column(first)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


# -- files

Rows = Sequence[Mapping[str, Any]]


def write_tables(inspection: Inspection, folder: Path) -> list[Path]:
    """Write all of them; returns which."""
    tables = {
        "pages": [page_row(page) for page in inspection.worst],
        "errors": [asdict(error) for error in inspection.errors],
    }
    written = [folder / "inspection.json"]
    with replacing(written[0]) as stream:
        stream.write(json.dumps(inspection.to_dict(), indent=1).encode())
    for name, rows in tables.items():
        written.append(folder / f"{name}.csv")
        write_csv(written[-1], rows)
        if rows and find_spec("pyarrow"):
            written.append(folder / f"{name}.parquet")
            write_parquet(written[-1], rows)
    return written


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write comparison.json and comparison.csv, one line per page; returns both."""
    report, table = folder / "comparison.json", folder / "comparison.csv"
    with replacing(report) as stream:
        stream.write(json.dumps(comparison.to_dict(), indent=1).encode())
    write_csv(table, [change.row() for change in comparison.pages])
    return [report, table]


def write_csv(path: Path, rows: Rows) -> None:
    """One line per row; points as `x,y x,y`, numbers with four digits."""
    table = io.StringIO()
    writer = csv.writer(table)
    if rows:
        writer.writerow(rows[0])
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    with replacing(path) as stream:
        stream.write(table.getvalue().encode())


def write_parquet(path: Path, rows: Rows) -> None:
    """The same rows with their types."""
    import pyarrow
    import pyarrow.parquet

    with replacing(path) as stream:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), stream)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, list):
        return " ".join(f"{x:g},{y:g}" for x, y in value)
    return plain_cell(value) if isinstance(value, str) else value
