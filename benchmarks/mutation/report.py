"""What became of the mutants: a table per room and the survivors, on the screen and in docs/reliability.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.document_parts import replace_part, table_lines

REASONS = Path(__file__).with_name("survivors.json")
PART = "mutants"
HEADINGS = ("room", "mutants", "noticed", "survived", "of these, nobody can notice", "noticed of the others")
Result = dict[str, Any]
Change = tuple[str, str, str]


class Reason(NamedTuple):
    """Why a mutant survives."""

    text: str
    is_noticeable: bool = False
    """The program does something else, and no test looks at it: such a survivor counts."""


def reasons(path: Path = REASONS) -> dict[Change, Reason]:
    """By module and lines: line numbers move."""
    listed = json.loads(path.read_text(encoding="utf-8"))
    return {
        (each["module"], each["before"], each["after"]): Reason(each["reason"], each.get("noticeable", False))
        for each in listed
    }


def change(result: Result) -> Change:
    """What a reason is of."""
    return result["module"], result["before"], result["after"]


def table_rows(results: list[Result], known: dict[Change, Reason]) -> list[list[str]]:
    """One row per room, and one for all."""
    rooms = dict.fromkeys(result["module"].split("/")[1] for result in results)
    groups = {room: [each for each in results if each["module"].split("/")[1] == room] for room in rooms}
    rows = []
    for name, group in [*sorted(groups.items()), ("all", results)]:
        noticed = sum(each["noticed"] for each in group)
        survived = [known.get(change(each)) for each in group if not each["noticed"]]
        excused = sum(reason is not None and not reason.is_noticeable for reason in survived)
        counts = (len(group), noticed, len(group) - noticed, excused)
        rows.append([name, *map(str, counts), f"{noticed / max(len(group) - excused, 1):.0%}"])
    return rows


def survivor_rows(results: list[Result], known: dict[Change, Reason]) -> list[list[str]]:
    """Place, change and reason of all that no test noticed."""
    return [
        [f"{each['module']}:{each['line']}", *change(each)[1:], known.get(change(each), Reason(each["by"])).text]
        for each in sorted(results, key=lambda each: (each["module"], each["line"]))
        if not each["noticed"]
    ]


def show(results: list[Result], controls: list[Result], console: Console) -> None:
    """On the screen."""
    known = reasons()
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
    known = reasons()
    rows = [[place, f"`{old}`", f"`{new}`", why] for place, old, new, why in survivor_rows(results, known)]
    lines = [f"{said}.", "", *table_lines(HEADINGS, table_rows(results, known))]
    lines += ["", "Survivors:", "", *table_lines(("place", "before", "after", "why"), rows)]
    replace_part(path, PART, lines)
