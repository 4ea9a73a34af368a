"""The inspection as files: pages.csv, errors.csv, inspection.json, and Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ocr.atomic import replacing
from ocr.csv_cells import plain_cell
from ocr.inspect.compare import Comparison
from ocr.inspect.inspection import Inspection, page_row

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
