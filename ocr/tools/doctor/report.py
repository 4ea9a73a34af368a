"""The report on the terminal: what there is, what is wrong, and the first few of each kind."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.tools.doctor.findings import KINDS, Finding, Report, Severity
from ocr.tools.doctor.fix import ACTIONS, FixSummary
from ocr.tools.terminal import printable

SUSPECTS = 20
"""How many are listed on the screen."""
STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "dim"}


def print_report(report: Report, console: Console, examples: int = 3) -> None:
    """Two tables, then `examples` findings of each kind and the sum."""
    console.print(_splits_table(report))
    if report.findings:
        console.print(_kinds_table(report))
    for kind, findings in report.by_kind().items():
        if findings[0].score is None:
            _print_kind(console, kind, findings, examples)
    if report.suspects:
        _print_suspects(console, report.suspects)
    console.print(_verdict(report))


def print_fix(summary: FixSummary, console: Console) -> None:
    """The files that were written, and how often each repair was made."""
    for path in summary.written:
        console.print(Text.assemble("wrote ", (str(path), "cyan")), soft_wrap=True)
    for split in summary.skipped:
        console.print(Text(f"{split} could not be read, so nothing was written for it", "yellow"))
    done = [(count, *ACTIONS[action]) for action, count in summary.counts().items()]
    counts = ", ".join(f"{plural(count, noun)} {verb}" for count, noun, verb in done)
    if summary.written and counts:
        counts = f"{counts}: {summary.record} lists all"
    console.print(Text(f"{counts or 'nothing to change'}."), soft_wrap=True)


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "error"), plural(0, "note")
    ('1 error', '0 notes')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def verdict_text(report: Report) -> str:
    """The sum of the report in one line."""
    counts = ", ".join(plural(count, severity) for severity, count in report.severities().items() if count)
    if not counts:
        return "Nothing is wrong."
    return f"{counts}: {'nothing is wrong' if report.ok else 'something is wrong'}."


def _splits_table(report: Report) -> Table:
    table = Table(title=escape(str(report.data)), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("split")
    for column in ("pages", "words", "ignored", "images", "megapixels", "EXIF-turned"):
        table.add_column(column, justify="right")
    for split in report.splits:
        counts = split.counts
        turned = sum(count for orientation, count in counts.orientations.items() if orientation != 1)
        pixels = "-" if counts.megapixels is None else "{0:g} - {2:g}, median {1:g}".format(*counts.megapixels)
        numbers = (counts.pages, counts.words, counts.ignored, counts.images)
        table.add_row(escape(split.name), *map(str, numbers), pixels, str(turned))
    return table


def _kinds_table(report: Report) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("finding")
    table.add_column("severity")
    for split in report.splits:
        table.add_column(escape(split.name), justify="right")
    table.add_column("meaning")
    for kind, findings in report.by_kind().items():
        severity = KINDS[kind].severity
        counts = [sum(finding.split == split.name for finding in findings) for split in report.splits]
        cells = [str(count) if count else "·" for count in counts]
        table.add_row(Text(kind, STYLES[severity]), severity, *cells, KINDS[kind].meaning)
    return table


def _print_kind(console: Console, kind: str, findings: list[Finding], examples: int) -> None:
    console.print(Text.assemble("\n", (kind, STYLES[KINDS[kind].severity]), f"  {KINDS[kind].fix}."))
    for finding in findings[:examples]:
        place = finding.place if finding.image else finding.split
        console.print(Text.assemble("  ", (place, "cyan"), f"  {printable(finding.detail)}"), soft_wrap=True)
    if len(findings) > examples:
        console.print(Text(f"  and {len(findings) - examples} more; --json lists all", "dim"))


def _print_suspects(console: Console, suspects: list[Finding]) -> None:
    table = Table(title="\nlabels to look at", title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("score", justify="right")
    for column in ("suspected", "place", "because"):
        table.add_column(column, overflow="fold")
    for finding in suspects[:SUSPECTS]:
        cells = (finding.kind.removeprefix("suspect-"), finding.place, printable(finding.detail))
        table.add_row(f"{finding.score:.2f}", *map(escape, cells))
    console.print(table)
    if len(suspects) > SUSPECTS:
        console.print(Text(f"  and {len(suspects) - SUSPECTS} more; --json lists all", "dim"))


def _verdict(report: Report) -> Text:
    return Text(f"\n{verdict_text(report)}", "bold green" if report.ok else "bold red")
