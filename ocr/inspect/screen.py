"""The inspection on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.inspect.causes import OTHER
from ocr.inspect.gains import Gain
from ocr.inspect.groups import Group
from ocr.inspect.inspection import Inspection

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
        shown = f"{page.name}: H-mean {page.counts.hmean:.3f}, {page.missed} missed, {page.false} false"
        console.print(Text(f"worst: {shown}"), soft_wrap=True)


def scores_table(inspection: Inspection) -> Table:
    table = _table(f"{inspection.detector} on {inspection.data}", "score", "precision", "recall", "hmean")
    for name, counts in (("IoU 0.5", inspection.counts), ("IoU 0.7", inspection.tight)):
        table.add_row(name, *(f"{value:.4f}" for value in (counts.precision, counts.recall, counts.hmean)))
    table.add_row("CLEval", *(f"{value:.4f}" for value in inspection.cleval))
    return table


def gains_table(gains: Sequence[Gain]) -> Table:
    table = _table("why, and points of H-mean if it were cured", "cause", "missed", "false", "points")
    table.add_column("what would help")
    for gain in gains:
        table.add_row(gain.cause, str(gain.missed), str(gain.false), f"{gain.points:+.2f}", escape(gain.cure))
    return table


def groups_table(groups: Sequence[Group]) -> Table:
    table = _table("scores by group", "group", "words", "recall", "boxes", "precision")
    last = None
    for group in groups:
        if group.kind != last:
            table.add_section()
            last = group.kind
        name = f"{group.kind}: {group.name}"
        table.add_row(name, str(group.words), _share(group.recall), str(group.boxes), _share(group.precision))
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _table(title: str, first: str, *numbers: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    table.add_column(first)
    for name in numbers:
        table.add_column(name, justify="right")
    return table
