"""The result of a campaign: as a file, on the screen, and in docs/reliability.md."""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.document_parts import replace_part, table_lines
from ocr.atomic import replacing
from ocr.system import usable_cores
from tests.campaign.campaign import Line, sums
from tests.campaign.cases import KINDS, Parser, Tally

PART = "campaign"
"""Of the document that --docs names."""
Result = dict[str, Any]


def result_of(lines: Sequence[Line], seed: int, seconds: float, options: argparse.Namespace) -> Result:
    """Everything that is told about a campaign."""
    words = [f"--faults {options.faults}", f"--inputs {options.inputs}", f"--seed {seed}"]
    words += [f"--minutes {options.minutes:g}"] if options.minutes else []
    words += [f"--only {name}" for name in options.only]
    command = f"python -m tests.campaign {' '.join(words)}"
    total = Tally()
    for line in lines:
        total.add(line.found.tally.to_dict())
    return {
        "command": command,
        "date": date.today().isoformat(),
        "seed": seed,
        "seconds": round(seconds, 1),
        "cores": usable_cores(),
        "python": platform.python_version(),
        "total": sums(lines) | total.to_dict(),
        "classes": {line.cls.name: _class_result(line) for line in lines},
    }


def _class_result(line: Line) -> Result:
    found = line.found
    told = {
        "kind": "parser" if isinstance(line.cls, Parser) else "fault",
        "about": line.cls.about,
        "cases": found.cases,
        "seconds": round(found.seconds, 2),
        "findings": found.findings,
    }
    if line.missing:
        told["missing"] = line.missing
    return told | ({"read": found.read, "lines": found.lines} if told["kind"] == "parser" else found.tally.to_dict())


def write_result(result: Result, path: Path) -> None:
    with replacing(path) as stream:
        stream.write((json.dumps(result, indent=1) + "\n").encode())


FAULT_COLUMNS = ("faults", "samples compared", "orders checked", "processes", "killed", "refused by name", "counted")
_TALLIED = ("cases", "samples", "orders", "processes", "kills", "refused", "counted")


def rows(result: Result, kind: str) -> Iterator[list[str]]:
    """The cells of each class of a kind, and of all together."""
    chosen = [each for each in result["classes"].values() if each["kind"] == kind]
    names = _TALLIED if kind == "fault" else ("cases", "read", "lines")
    for each in chosen:
        cells = [f"{each[name]:,}" for name in names] if "missing" not in each else [f"needs {each['missing']}"]
        yield [each["about"], *cells, *[""] * (len(names) - len(cells)), _findings([each])]
    summed = [f"{sum(each[name] for each in chosen):,}" for name in names if name != "lines"]
    yield ["all", *summed, *([""] if kind == "parser" else []), _findings(chosen)]


def _findings(classes: Sequence[Result]) -> str:
    counts = Counter(finding["what"] for each in classes for finding in each["findings"])
    return ", ".join(f"{count} {what}" for what, count in counts.items()) or "0"


HEADINGS = {
    "fault": ("fault", *FAULT_COLUMNS, "findings"),
    "parser": ("parser", "inputs", "read", "lines reached", "findings"),
}


def show(result: Result, console: Console) -> None:
    """The tables, and what was found."""
    for kind, headings in HEADINGS.items():
        table = Table(*headings[:1], box=None, header_style="bold")
        for heading in headings[1:]:
            table.add_column(heading, justify="right")
        for row in rows(result, kind):
            table.add_row(*row)
        console.print(table)
    console.print(_verdict(result), highlight=False)
    for each in result["classes"].values():
        for finding in each["findings"][:5]:
            console.print(f"again: python -m tests.campaign --case {finding['case']}", highlight=False)


def _verdict(result: Result) -> str:
    total = result["total"]
    counts = Counter(finding["what"] for each in result["classes"].values() for finding in each["findings"])
    listed = ", ".join(f"{counts.get(kind, 0)} {kind}{'s' * (counts.get(kind, 0) != 1)}" for kind in KINDS)
    return (
        f"{total['faults']:,} faults and {total['inputs']:,} inputs in {result['seconds'] / 60:.0f} minutes: "
        f"{listed.replace('crashs', 'crashes')}. {result['command']}"
    )


def write_document(result: Result, path: Path) -> None:
    """Replace what is between the marks of a document."""
    replace_part(path, PART, _markdown(result))


def _markdown(result: Result) -> list[str]:
    verdict, _, command = _verdict(result).rpartition(". ")
    lines = [
        f"{result['date']}, {result['cores']} CPU cores, Python {result['python']}, `{command}`:",
        "",
        f"{verdict}.",
    ]
    for kind, headings in HEADINGS.items():
        lines += ["", *table_lines(headings, list(rows(result, kind)))]
    return lines
