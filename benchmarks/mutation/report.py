"""What became of the mutants: a table per room and the survivors, on the screen and in docs/reliability.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.document_parts import replace_part, table_lines

EQUIVALENT = Path(__file__).with_name("equivalent.json")
PART = "mutants"
HEADINGS = ("room", "mutants", "noticed", "survived", "of these, nobody can notice", "noticed of the others")
Result = dict[str, Any]


def equivalents(path: Path = EQUIVALENT) -> dict[tuple[str, str, str], str]:
    """Why a mutant that survives is none, by module and lines: line numbers move."""
    listed = json.loads(path.read_text(encoding="utf-8"))
    return {(each["module"], each["before"], each["after"]): each["reason"] for each in listed}


def reason(result: Result, known: dict[tuple[str, str, str], str]) -> str | None:
    """Of a survivor; None if it has none."""
    return known.get((result["module"], result["before"], result["after"]))


def table_rows(results: list[Result], known: dict[tuple[str, str, str], str]) -> list[list[str]]:
    """One row per room, and one for all."""
    rooms = dict.fromkeys(result["module"].split("/")[1] for result in results)
    groups = {room: [each for each in results if each["module"].split("/")[1] == room] for room in rooms}
    rows = []
    for name, group in [*sorted(groups.items()), ("all", results)]:
        noticed = sum(each["noticed"] for each in group)
        excused = sum(not each["noticed"] and reason(each, known) is not None for each in group)
        counts = (len(group), noticed, len(group) - noticed, excused)
        rows.append([name, *map(str, counts), f"{noticed / max(len(group) - excused, 1):.0%}"])
    return rows


def survivor_rows(results: list[Result], known: dict[tuple[str, str, str], str]) -> list[list[str]]:
    """Place, change and reason of all that no test noticed."""
    return [
        [f"{each['module']}:{each['line']}", each["before"], each["after"], reason(each, known) or each["by"]]
        for each in sorted(results, key=lambda each: (each["module"], each["line"]))
        if not each["noticed"]
    ]


def show(results: list[Result], controls: list[Result], console: Console) -> None:
    """On the screen."""
    known = equivalents()
    for title, headings, rows in (
        ("Survivors", ("place", "before", "after", "why"), survivor_rows(results, known)),
        ("Mutants", HEADINGS, table_rows(results, known)),
    ):
        table = Table(*headings, title=title, title_justify="left")
        for row in rows:
            table.add_row(*(cell.replace("[", "\\[") for cell in row))
        console.print(table)
    for control in controls:
        if control["noticed"]:
            console.print(
                f"the figures are worth nothing: {control['by']} also notices a comment in {control['module']}"
            )


def write_document(path: Path, results: list[Result], said: str) -> None:
    """Replace the figures of the document."""
    known = equivalents()
    rows = [[place, f"`{old}`", f"`{new}`", why] for place, old, new, why in survivor_rows(results, known)]
    lines = [f"{said}.", "", *table_lines(HEADINGS, table_rows(results, known))]
    lines += ["", "Survivors:", "", *table_lines(("place", "before", "after", "why"), rows)]
    replace_part(path, PART, lines)
