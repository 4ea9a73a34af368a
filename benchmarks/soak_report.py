"""What a soak has measured: whether it is flat, on the screen, as a plot, and in docs/reliability.md."""

from __future__ import annotations

import csv
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.document_parts import read_part, replace_part, table_lines
from benchmarks.measure import console
from ocr.atomic import replacing
from ocr.system import usable_cores

PART = "soak"
PICTURE = "soak.png"
MIN_ROUNDS = 12
"""Three in each quarter: of fewer, a median says little."""
OVERSHOOT = 1.1
"""Of the budget of all caches: a process that fills one counts those of others only now and then."""
Rows = list[dict[str, float]]
"""A figure per column, of each round."""


@dataclass(frozen=True)
class Verdict:
    """A quantity in the second and in the last quarter of a soak, and whether it may have changed so much."""

    title: str
    early: float
    late: float
    per_hour: float
    allowed: str
    is_flat: bool


@dataclass(frozen=True)
class Rule:
    """How much larger the median of the last quarter may be than that of the second: by a share or by a number."""

    title: str
    column: str
    share: float = 0.0
    more: float = 0.0
    falls: bool = False
    """Smaller is what must not be: speed."""

    def judge(self, minutes: Sequence[float], values: Sequence[float]) -> Verdict:
        """The first quarter does not count: libraries load, caches fill, the allocator finds its size."""
        quarter = len(values) // 4
        early, late = median(values[quarter : 2 * quarter]), median(values[-quarter:])
        hours = (median(minutes[-quarter:]) - median(minutes[quarter : 2 * quarter])) / 60
        room = max(self.share * early, self.more)
        is_flat = early - late <= room if self.falls else late - early <= room
        return Verdict(self.title, early, late, (late - early) / hours, self.allowed, is_flat)

    @property
    def allowed(self) -> str:
        """As it is shown."""
        least = f"{self.more:g}" if self.more or not self.share else ""
        shown = " or ".join(filter(None, [f"{self.share:.0%}" if self.share else "", least]))
        return f"{'-' if self.falls else '+'}{shown}"


PROCESSES = ("resident", "service")
ACTIVITIES = ("read", "validate", "train", "fill", "predict", "serve")
SLOWER = dict.fromkeys(ACTIVITIES, 0.3) | {"fill": 0.6}
"""By which share each may be slower. Of what is to be filled, more or less is there already."""
RULES = (
    *(Rule(f"{name}: own memory, MB", f"{name}_own_mb", 0.05, 24) for name in PROCESSES),
    *(Rule(f"{name}: descriptors", f"{name}_descriptors", more=1) for name in PROCESSES),
    *(Rule(f"{name}: threads", f"{name}_threads", more=1) for name in PROCESSES),
    *(Rule(f"{name}: mappings", f"{name}_mappings", 0.1, 32) for name in PROCESSES),
    *(Rule(f"{name}: child processes", f"{name}_children") for name in PROCESSES),
    Rule("disk, MB", "disk_mb", 0.1, 8),
    Rule("files", "files", 0.1, 4),
    Rule("files in /dev/shm", "shm_files"),
    *(Rule(f"{name}: pages per CPU second", f"{name}_pages_cpu_s", SLOWER[name], falls=True) for name in ACTIVITIES),
)


def read_rows(path: Path) -> Rows:
    """The rounds of soak.csv."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(stream)]


def judge(rows: Rows, rules: Sequence[Rule] = RULES) -> list[Verdict]:
    """A verdict for each rule; none if the soak was too short."""
    verdicts = []
    for rule in rules:
        known = [row for row in rows if rule.column in row]
        if len(known) >= MIN_ROUNDS:
            verdicts.append(rule.judge(*([row[name] for row in known] for name in ("minutes", rule.column))))
    return verdicts


def over_budget(rows: Rows) -> list[str]:
    """Rounds after which the caches took more of the disk than they may."""
    over = [row for row in rows if row["cache_mb"] > OVERSHOOT * row["budget_mb"]]
    return [f"after round {row['round']:.0f} caches take {row['cache_mb']:.0f} MB: too much" for row in over]


HEADINGS = ("", "second quarter", "last quarter", "change per hour", "allowed", "flat")


def cells(verdict: Verdict) -> list[str]:
    """A row of the table."""
    figures = [f"{verdict.early:,.1f}", f"{verdict.late:,.1f}", f"{verdict.per_hour:+,.1f}"]
    return [verdict.title, *figures, verdict.allowed, "yes" if verdict.is_flat else "no"]


def summary(rows: Rows, findings: Sequence[str]) -> str:
    """What was done, and what went wrong."""
    last = {name: round(value) for name, value in rows[-1].items()}
    return (
        f"{len(rows)} rounds in {last['minutes']} minutes: {last['compared']:,} samples and answers compared, "
        f"{last['wrong']} wrong; {last['broken_off']:,} epochs broken off, {last['edits']} edits, "
        f"{last['processes']} other processes, {last['kills']} of them killed; {len(findings)} findings."
    )


def show(rows: Rows, verdicts: Sequence[Verdict], findings: Sequence[str]) -> None:
    """On the screen."""
    if verdicts:
        table = Table(HEADINGS[0], title="Second quarter against last", title_justify="left")
        for heading in HEADINGS[1:]:
            table.add_column(heading, justify="right")
        for verdict in verdicts:
            table.add_row(*cells(verdict))
        console.print(table)
    else:
        console.print(f"fewer than {MIN_ROUNDS} rounds: too short to say whether anything grows")
    for finding in findings:
        console.print(finding, markup=False, highlight=False)
    console.print(summary(rows, findings), highlight=False)


def write_document(path: Path, plot: Path, rows: Rows, findings: Sequence[str], command: str) -> None:
    """Replace what is between the marks of a document, and the plot beside it."""
    read_part(path, PART)  # A document without the marks is refused before anything is written.
    (path.parent / "pictures").mkdir(exist_ok=True)
    shutil.copyfile(plot, path.parent / "pictures" / PICTURE)
    about = f"{date.today().isoformat()}, {usable_cores()} CPU cores, Python {platform.python_version()}, `{command}`:"
    lines = [about, "", summary(rows, findings), *(f"- {finding}" for finding in findings)]
    lines += ["", *table_lines(HEADINGS, [cells(verdict) for verdict in judge(rows)])]
    lines += ["", f"![Memory, descriptors, threads, disk and speed over the minutes of a soak](pictures/{PICTURE})"]
    replace_part(path, PART, lines)


PANELS = {
    "memory, MB (own: without pages of files)": [
        f"{name}_{kind}_mb" for name in PROCESSES for kind in ("own", "pss", "rss")
    ],
    "descriptors, threads, child processes": [
        f"{name}_{kind}" for name in PROCESSES for kind in ("descriptors", "threads", "children")
    ],
    "disk, MB": ["disk_mb", "cache_mb", "budget_mb"],
    "files; mappings of memory": ["files", "shm_files", *(f"{name}_mappings" for name in PROCESSES)],
    "pages per second": [f"{name}_pages_s" for name in ACTIVITIES],
    "pages per CPU second": [f"{name}_pages_cpu_s" for name in ACTIVITIES],
}


def plot(rows: Rows, path: Path) -> None:
    """Small multiples over the minutes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(3, 2, figsize=(12, 11), sharex=True, layout="constrained")
    for axes, (title, columns) in zip(grid.flat, PANELS.items(), strict=True):
        for column in columns:
            known = [(row["minutes"], row[column]) for row in rows if column in row]
            if known:
                label = column.removesuffix("_pages_s").removesuffix("_pages_cpu_s").removesuffix("_mb")
                axes.plot(*zip(*known, strict=True), label=label.replace("_", " "), linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
        if "per" in title:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        if axes.lines:
            axes.legend(fontsize=7, ncols=2)
    for axes in grid[-1]:
        axes.set_xlabel("minutes")
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=110)
    pyplot.close(figure)
