"""Advice: the verdict, the changes that were tried, and how they are shown on the screen, as JSON and as a page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from ocr import __version__
from ocr.advisor.measure import Timing
from ocr.atomic import replacing
from ocr.report.numbers import in_count, in_ms, in_percent, in_seconds, in_times
from ocr.report.page import render, write_page

PRESENT = "present"
"""The configuration as it is."""
SAME = ""
"""Of a change after which the model learns the same."""
NOT_KNOWN = "not known"
WORTH_IT, WORTH_IT_IN_NOISE = 1.05, 1.25
"""A smaller gain is within the noise: of a quiet machine, and of one that other programs use."""
MOST_WORK = 0.5
"""Share of the work on a page; a stage that takes more is a cause."""
WAIT_IS_MUCH = 0.1
"""Share of an epoch; if the model waits less, the model is the bottleneck."""
MAX_ROWS = 6

Show = Callable[[str], object]
"""Takes the name of what is being measured."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the configuration, and what is wrong with the present one if it helps."""

    name: str
    overrides: tuple[str, ...]
    cause: str
    setting: str
    """Two changes of the same setting cannot be made together."""
    hmean: str = SAME
    """What is known of the H-mean after it; empty if the model learns the same."""


@dataclass(frozen=True, slots=True)
class Row:
    """A change and what an epoch then takes."""

    change: Change
    seconds: float
    """Of an epoch over the same pages."""
    gain: float
    """By pages per second: 2 means twice as many."""
    how: str = "measured"
    """measured; computed: nothing was run; from parts: loader and step were run, but not together."""
    first_seconds: float | None = None
    """Of the first epoch, if it fills a cache."""


@dataclass
class Advice:
    """What an epoch takes, why, and what would make it faster."""

    place: str
    pages: float
    batches: int
    present: Timing
    seconds: float
    """Of an epoch as configured."""
    wait_share: float
    loader_seconds: float | None
    """Of an epoch of the loader alone."""
    step_seconds: float | None
    """Of a step alone."""
    rows: list[Row] = field(default_factory=list)
    """Changes after which the model learns the same, best first."""
    other_rows: list[Row] = field(default_factory=list)
    """Changes after which it learns something else."""
    not_tried: dict[str, str] = field(default_factory=dict)
    """Changes that could not be run, and why."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds per page, by the stage of the path."""
    verified: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, predicted and measured seconds of an epoch."""
    others: float = 0.0
    """Share of the cores that other programs used in the noisiest measurement."""
    noisy: list[str] = field(default_factory=list)
    """What was measured on a busy machine only."""
    machine: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    unit: str = "page"
    step_name: str = "the model's step"
    step_cause: str = ""
    """What is wrong with the step, whatever it computes: few pages."""
    may_alter: bool = False
    """Whether changes after which the model learns something else can be recommended."""
    show_all: bool = False
    show_stages: bool = False

    # -- the verdict

    @property
    def bottleneck(self) -> str:
        """loader or model."""
        return "loader" if self.wait_share > WAIT_IS_MUCH else "model"

    @property
    def useful(self) -> list[Row]:
        """Rows that change something for the better, and leave what the model learns alone unless that is asked for."""
        rows = [*self.rows, *self.other_rows] if self.may_alter else self.rows
        return [row for row in rows if row.gain >= self._least and row.how != "computed"]

    @property
    def _least(self) -> float:
        """Smaller gains do not count."""
        return WORTH_IT_IN_NOISE if self.noisy else WORTH_IT

    @property
    def best(self) -> Row | None:
        """The fastest that was tried; it can be several changes together."""
        return max(self.useful, key=lambda row: row.gain, default=None)

    @property
    def best_single(self) -> Row | None:
        """The one change that helps most."""
        return max((row for row in self.useful if row.change.setting), key=lambda row: row.gain, default=None)

    @property
    def cause(self) -> str:
        """Why the epoch takes as long as it does: what the best change removes, or the slowest stage."""
        causes = [] if self.best_single is None else [self.best_single.change.cause]
        if self.bottleneck == "model":
            return ", and ".join([*(causes or [self.step_name]), *filter(None, [self.step_cause])])
        slowest = max(self.stages, key=lambda name: self.stages[name], default="")
        share = self.stages[slowest] / sum(self.stages.values()) if self.stages else 0.0
        stage = f"{slowest} takes {in_percent(share)} of the work on a {self.unit}"
        # A cache removes stages; workers only divide them.
        if share > MOST_WORK and not (self.best_single is not None and self.best_single.change.setting == "cache"):
            causes.insert(0, stage)
        return ", and ".join(causes) or (stage if self.stages else "the loader itself")

    @property
    def sentence(self) -> str:
        """The verdict."""
        waits = f"waits for data {in_percent(self.wait_share)} of an epoch"
        text = f"The {self.bottleneck} is the bottleneck: "
        text += f"the model {waits}" if self.bottleneck == "loader" else f"it {waits}"
        text += f". Cause: {self.cause}."
        if (one := self.best_single) is None:
            return f"{text} No change that was tried makes an epoch faster."
        text += f" {' '.join(one.change.overrides)} makes it {in_times(one.gain)} as fast ({self._from_to(one)})."
        if self.best is not None and self.best is not one:
            text += f" With {self.best.change.name}: {in_times(self.best.gain)}."
        return text

    def _from_to(self, row: Row) -> str:
        return f"an epoch takes {in_seconds(row.seconds)} instead of {in_seconds(self.seconds)}"

    @property
    def unchanged(self) -> list[str]:
        """Names of what was tried and changes nothing."""
        shown = [row.change.name for row in self.shown(self.rows) + self.shown(self.other_rows)]
        tried = [*self.rows, *self.other_rows]
        return [row.change.name for row in tried if row.change.name not in shown and row.how != "computed"]

    def shown(self, rows: Sequence[Row]) -> list[Row]:
        """Rows that change something, for better or worse, best first; all of them if that is asked for."""
        ordered = sorted(rows, key=lambda row: (row.how == "computed", -row.gain))
        if self.show_all:
            return ordered
        return [row for row in ordered if not 1 / self._least < row.gain < self._least][:MAX_ROWS]

    # -- screen, JSON, page

    def __str__(self) -> str:
        console = Console(record=True, width=100, quiet=True)
        console.quiet = False
        with console.capture() as captured:
            self.show(console)
        return captured.get()

    def show(self, console: Console) -> None:
        """The verdict first, then the tables."""
        _tell(console, f"\n[bold]{escape(self.sentence)}[/]")
        if rows := self.shown(self.rows):
            console.print(self._table(f"An epoch of {in_count(round(self.pages))} {self.unit}s", rows, hmean=False))
        if rows := self.shown(self.other_rows):
            console.print(self._table("The model would learn something else", rows, hmean=True))
        if self.unchanged:
            _tell(console, f"No change: {escape(', '.join(self.unchanged))}.")
        for name, why in self.not_tried.items():
            _tell(console, f"Not tried: {escape(name)}: {escape(why)}")
        if self.stages and self.show_stages:
            console.print(self.stage_table())
        for name, predicted, measured in self.verified:
            error = in_percent(predicted / measured - 1, signed=True)
            _tell(
                console,
                f"Verified: {escape(name)}: predicted {in_seconds(predicted)}, took {in_seconds(measured)} ({error}).",
            )
        if self.noisy:
            _tell(console, f"[yellow]{escape(self.noise)}[/]")

    @property
    def noise(self) -> str:
        """What is said if the machine was busy."""
        what = ", ".join(self.noisy[:3]) + (", ..." if len(self.noisy) > 3 else "")
        return f"Other programs used {in_percent(self.others)} of the cores ({what}). Measure again on a quiet machine."

    def stage_table(self) -> Table:
        """Milliseconds per stage, in one thread."""
        table = _new_table(f"One {self.unit} in one thread", "stage", "ms", "share")
        total = sum(self.stages.values())
        for name, seconds in self.stages.items():
            table.add_row(escape(name), in_ms(1e3 * seconds), in_percent(seconds / total))
        table.add_row("all", in_ms(1e3 * total), "", style="bold")
        return table

    def _table(self, title: str, rows: Sequence[Row], hmean: bool) -> Table:
        table = _new_table(title, "change", "epoch", f"{self.unit}s/s", "gain", "how", *["H-mean"] * hmean)
        if not hmean:
            speed = in_count(round(self.pages / self.seconds))
            table.add_row("present", in_seconds(self.seconds), speed, "", "measured", style="bold")
        for row in rows:
            style = "green" if row is self.best_single else ""
            name = f"{row.change.name}\n  {' '.join(row.change.overrides)}" if row.change.overrides else row.change.name
            table.add_row(*[escape(name), *self.cells(row)], *[row.change.hmean] * hmean, style=style)
        return table

    def cells(self, row: Row) -> list[str]:
        """Epoch, speed, gain, and how it is known."""
        return [
            in_seconds(row.seconds),
            in_count(round(self.pages / self.seconds * row.gain)),
            in_times(row.gain),
            row.how,
        ]

    def to_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        return {
            "glyphfeed": __version__,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": self.command,
            "machine": dict(self.machine),
            "place": self.place,
            "pages": self.pages,
            "batches": self.batches,
            "sentence": self.sentence,
            "bottleneck": self.bottleneck,
            "cause": self.cause,
            "epoch_s": self.seconds,
            "wait_share": self.wait_share,
            "loader_s": self.loader_seconds,
            "step_s": self.step_seconds,
            "best": asdict(self.best) if self.best else None,
            "best_single": asdict(self.best_single) if self.best_single else None,
            "rows": [asdict(row) for row in sorted(self.rows, key=lambda row: -row.gain)],
            "other_rows": [asdict(row) for row in sorted(self.other_rows, key=lambda row: -row.gain)],
            "not_tried": self.not_tried,
            "stages_ms": {name: 1e3 * seconds for name, seconds in self.stages.items()},
            "verified": [
                {"name": name, "predicted_s": predicted, "measured_s": measured}
                for name, predicted, measured in self.verified
            ],
            "others_share": self.others,
            "noisy": self.noisy,
        }

    def write(self, path: str | Path) -> None:
        """The page, or the figures if the file ends with .json."""
        if str(path).endswith(".json"):
            with replacing(Path(path)) as stream:
                stream.write((json.dumps(self.to_dict(), indent=1) + "\n").encode())
        else:
            write_page(Path(path), "advice.html", **self._content())

    def _content(self) -> dict[str, Any]:
        rows, others = self.shown(self.rows), self.shown(self.other_rows)
        longest = max([self.seconds, *(row.seconds for row in rows + others)])
        bars = [("present", in_seconds(self.seconds), [("c5", self.seconds / longest)])]
        for row in rows + others:
            colour = "c4" if row.change.hmean else "c2" if row.how == "computed" else "c1"
            value = f"{in_seconds(row.seconds)} · {in_times(row.gain)}"
            bars.append((row.change.name, value, [(colour, row.seconds / longest)]))
        keys = [("c1", "the model learns the same"), ("c4", "it learns something else"), ("c2", "computed")]
        total = sum(self.stages.values())
        return {
            "title": f"advice: {Path(self.place).name}",
            "heading": "advice",
            "sentence": self.sentence,
            "state": "wrong" if self.bottleneck == "loader" else "ok",
            "advice": self,
            "tiles": [
                (f"{self.unit}s per second now", in_count(round(self.pages / self.seconds))),
                ("per epoch now", in_seconds(self.seconds)),
                ("of the time waiting for data", in_percent(self.wait_share)),
                *([(f"with {self.best.change.name}", in_times(self.best.gain))] if self.best else []),
            ],
            "bars": bars,
            "keys": [key for key in keys if any(parts[0][0] == key[0] for _, _, parts in bars)],
            "rows": rows,
            "other_rows": others,
            "stage_bars": [
                (
                    name,
                    f"{in_ms(1e3 * spent)} ms · {in_percent(spent / total)}",
                    [("c1", spent / max(self.stages.values()))],
                )
                for name, spent in self.stages.items()
            ],
            "now": [
                ("bottleneck", self.bottleneck),
                ("cause", self.cause),
                ("loader alone", in_seconds(self.loader_seconds)),
                ("a step alone", in_seconds(self.step_seconds)),
                (f"{self.unit}s in a batch", in_count(round(self.pages / max(1, self.batches), 1))),
            ],
        }

    def _repr_html_(self) -> str:
        from markupsafe import escape as in_html

        page = in_html(render("advice.html", **self._content()))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 50em; border: 0"></iframe>'


@contextmanager
def progress(console: Console, seconds: float) -> Iterator[Show]:
    """Shows what is being measured: in a terminal next to a bar of the time, into a file as a line for each."""
    if not console.is_terminal:
        seen: set[str] = set()

        def tell(what: str) -> None:
            if what not in seen:
                seen.add(what)
                console.print(f"measuring {what}", highlight=False, markup=False, soft_wrap=True)

        yield tell
        return
    columns = (_TimeBar(seconds), TextColumn("measuring {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda what: bar.update(task, description=escape(what))


class _TimeBar(ProgressColumn):
    """Time that was spent, of the usual; pulses after it, in whole epochs and while a model is compiled."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        super().__init__()

    def render(self, task: Task) -> ProgressBar:
        spent = task.elapsed or 0.0
        return ProgressBar(self._seconds, min(spent, self._seconds), width=30, pulse=spent > self._seconds)


def _tell(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)


def _new_table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=heading != "H-mean")
    return table
