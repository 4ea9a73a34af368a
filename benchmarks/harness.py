"""What every benchmark is made of: a name, the tables it fills, and a function from pages to rows.

@benchmark("maps", table="results#maps", rounds=5)
def maps(data: Data) -> Iterator[Row]:
    best = fastest(interleave({"NumPy": timed(numpy_maps), "GlyphFeed": timed(compiled_maps)}, data.rounds))
    for name, seconds in best.items():
        times = Target(best["NumPy"] / seconds, " x", at_least=20)
        yield Row(name, {"a page": Figure(seconds, "s"), "times NumPy": times})

benchmarks/run.py runs each in a process of its own and keeps the rows as JSON; benchmarks/documents.py writes them into
the documents. A benchmark prints nothing and takes no options.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ocr.atomic import replacing
from ocr.errors import ConfigError, DataError
from ocr.system import total_memory, usable_cores

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "data" / "figures"
"""One NAME.json per benchmark that was run."""
console = Console()

# -- cells and rows


@dataclass(frozen=True)
class Figure:
    """A number with its unit. Seconds and bytes are shown in the unit that fits: `Figure(0.0313, "s")` as 31.3 ms.

    >>> print(Figure(0.0313, "s"), Figure(146_000, "B"), Figure(13.31, " x"), Figure(631, " x"), Figure(1.05, " %"))
    31.3 ms 146 kB 13.3 x 631 x 1.05 %
    >>> print(Figure(35.2, " x", measured=Figure(0.0436, "s")))
    43.6 ms, 35 x
    """

    value: float
    unit: str = ""
    digits: int | None = None
    """After the point; None: as many as count."""
    measured: Figure | None = None
    """What the number was computed from; shown in front of it."""

    def __str__(self) -> str:
        if self.measured is not None:
            return f"{self.measured}, {replace(self, measured=None)}"
        value, unit = self.value, self.unit
        if self.digits is not None:
            return f"{value:,.{self.digits}f}{unit}"
        if unit == "s":
            value, unit = (value, " s") if abs(value) >= 1 or not value else (value * 1e3, " ms")
        elif unit == "B":
            scale = next((scale for scale in (1e9, 1e6, 1e3) if abs(value) >= scale), 1)
            value, unit = value / scale, {1e9: " GB", 1e6: " MB", 1e3: " kB", 1: " bytes"}[scale]
        if value == int(value):
            return f"{int(value):,}{unit}"
        size = abs(value)
        digits = 0 if size >= 20 else 1 if size >= 2 else 2
        if unit in (" s", " ms"):
            digits = 0 if size >= 100 else 1 if size >= 10 else 2
        return f"{value:,.{digits}f}{unit}" if size >= 0.01 else f"{value:.1e}{unit}"


@dataclass(frozen=True)
class Target:
    """A number with a bound, and by how much it is missed: a benchmark that cannot come out badly is not one.

    >>> print(Target(4.9, " x", at_least=5, measured=Figure(0.313, "s")))
    313 ms, 4.9 x (target ≥ 5 x: missed by 2 %)
    >>> print(Target(5.8, " x", at_least=5), Target(1.09, " %", at_most=1), sep="; ")
    5.8 x (target ≥ 5 x); 1.09 % (target ≤ 1 %: missed by 9 %)
    """

    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    measured: Figure | None = None
    """What the number was computed from; shown in front of it."""
    digits: int | None = None
    """After the point, as of `Figure`."""

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise TypeError("a Target has one bound: at_least or at_most")

    @property
    def bound(self) -> float:
        """The one that is set."""
        bound = self.at_least if self.at_most is None else self.at_most
        assert bound is not None
        return bound

    @property
    def figure(self) -> Figure:
        """The number without its bound."""
        return Figure(self.value, self.unit, self.digits, self.measured)

    @property
    def is_met(self) -> bool:
        """A value that is not a number misses its target."""
        return self.value >= self.bound if self.at_most is None else self.value <= self.bound

    def __str__(self) -> str:
        shown = f"{Figure(self.value, self.unit, self.digits)} (target {'≥' if self.at_most is None else '≤'} "
        shown += str(Figure(self.bound, self.unit, self.digits))
        if not self.is_met:
            gap = 100 * abs(self.value - self.bound) / abs(self.bound) if self.bound else float("nan")
            shown += ": missed" + (f" by {gap:.{0 if gap >= 1 else 1}f} %" if gap == gap else "")
        return f"{self.measured}, {shown})" if self.measured else f"{shown})"


Cell = str | int | float | Figure | Target | None


def figure(
    value: float,
    unit: str = "",
    measured: Figure | None = None,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    digits: int | None = None,
) -> Figure | Target:
    """A `Target` if it has a bound, else a `Figure`."""
    if at_least is None and at_most is None:
        return Figure(value, unit, digits, measured)
    return Target(value, unit, at_least, at_most, measured, digits)


def times(slow: float, fast: float, at_least: float | None = None) -> Figure | Target:
    """The seconds of the fast one, and by how many times it is faster.

    >>> print(times(1.54, 0.313, at_least=5))
    313 ms, 4.9 x (target ≥ 5 x: missed by 2 %)
    """
    return figure(slow / fast, " x", Figure(fast, "s"), at_least=at_least)


def cost(seconds: float, of: float, at_most: float | None = None) -> Figure | Target:
    """Seconds, and how many times as long as another thing they are.

    >>> print(cost(0.216, of=0.166))
    216 ms, 1.30 x
    """
    return figure(seconds / of, " x", Figure(seconds, "s"), at_most=at_most)


@dataclass(frozen=True)
class Row:
    """A line of a table: its name, and cells by the heading of their column.

    Rows with the same caption make one table, so that one benchmark can fill several.
    """

    name: str
    cells: Mapping[str, Cell]
    caption: str = ""

    def value(self, heading: str) -> float:
        """The number of a cell."""
        cell = self.cells[heading]
        number = cell.value if isinstance(cell, Figure | Target) else cell
        if not isinstance(number, int | float):
            raise DataError(f"{self.name}, {heading}: {cell!r} is not a number", value=cell)
        return float(number)

    def shown(self, heading: str) -> str:
        """A cell as text."""
        cell = self.cells.get(heading)
        return "" if cell is None else str(Figure(cell)) if isinstance(cell, float) else str(cell)


# -- benchmarks


@dataclass(frozen=True)
class Data:
    """What a benchmark gets."""

    receipts: Path
    """A dataset folder with images/{train,val} and jsons/{train,val}.json: real pages, or synthetic ones."""
    forms: Path
    """Another one, whose unit is the word."""
    rounds: int
    work_folder: Path
    """Empty, for caches and whatever else is written; removed afterwards."""
    kept: Path = KEPT
    runs: Path = KEPT / "runs"
    """For trainings: stays, so that what was interrupted resumes; of synthetic pages it is removed afterwards."""
    settings: tuple[str, ...] = ()
    """KEY=VALUE of `--set`, the last word on whatever is trained: `recipe.steps=2` for a trial."""

    def setting(self, name: str, default: str) -> str:
        """The last KEY=VALUE of `--set` with this key: `--set tiles.model=best.ckpt`."""
        given = dict(setting.partition("=")[::2] for setting in self.settings)
        return given.get(name, default)

    def rows_of(self, name: str) -> list[Row]:
        """What another benchmark has measured; for tables that are computed from others (`uses`)."""
        return Result.read(self.kept / f"{name}.json").rows


@dataclass(frozen=True)
class Place:
    """Where a table stands, `DOCUMENT#MARK`, and which part of the rows: all, unless chosen."""

    where: str
    rows: str = ""
    """A pattern for their names."""
    columns: Sequence[str] = ()
    caption: str = ""
    """The beginning of a caption."""
    with_targets: bool = True

    def tables(self, rows: Iterable[Row]) -> dict[str, list[Row]]:
        """The chosen rows by their caption."""
        found: dict[str, list[Row]] = {}
        for row in rows:
            if row.caption.startswith(self.caption) and re.search(self.rows, row.name):
                cells = {name: row.cells[name] for name in self.columns if name in row.cells} or row.cells
                if not self.with_targets:
                    cells = {name: cell.figure if isinstance(cell, Target) else cell for name, cell in cells.items()}
                found.setdefault(row.caption, []).append(Row(row.name, cells, row.caption))
        return found


@dataclass(frozen=True)
class Benchmark:
    """As registered by `benchmark`."""

    name: str
    run: Callable[[Data], Iterator[Row | str]]
    places: tuple[Place, ...]
    rounds: int
    threads: int | None
    pages: tuple[str, ...]
    uses: tuple[str, ...]
    pictures: Mapping[str, Callable[[Result, Path], None]]

    @property
    def about(self) -> str:
        """The first line of its docstring."""
        return (self.run.__doc__ or "").strip().split("\n")[0]


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(
    name: str,
    table: str | Place | Sequence[str | Place] = (),
    *,
    rounds: int = 3,
    threads: int | None = 1,
    pages: Sequence[str] = ("receipts",),
    uses: Sequence[str] = (),
    pictures: Mapping[str, Callable[[Result, Path], None]] | None = None,
) -> Callable[[Callable[[Data], Iterator[Row | str]]], Callable[[Data], Iterator[Row | str]]]:
    """Register a function that yields rows, and lines of text that stand under them.

    `table`: where they go, "results#epochs" for the mark `epochs` of docs/results.md. `threads`: of OpenCV, torch and
    BLAS (None: as they are). `pages`: what it reads of `Data`. `uses`: benchmarks whose rows it is computed from.
    `pictures`: files below docs/, and what draws each from the result.
    """
    places = [table] if isinstance(table, str | Place) else table

    def register(run: Callable[[Data], Iterator[Row | str]]) -> Callable[[Data], Iterator[Row | str]]:
        if name in BENCHMARKS:
            raise ConfigError(f"two benchmarks are named {name!r}. Rename one", setting="benchmark", value=name)
        BENCHMARKS[name] = Benchmark(
            name,
            run,
            tuple(place if isinstance(place, Place) else Place(place) for place in places),
            rounds,
            threads,
            tuple(pages),
            tuple(uses),
            pictures or {},
        )
        return run

    return register


def load_benchmarks() -> dict[str, Benchmark]:
    """All of them, those that are computed from others last."""
    for package in ("benchmarks.tables", "benchmarks.peers"):
        folder = ROOT / package.replace(".", "/")
        for module in sorted(one.name for one in pkgutil.iter_modules([str(folder)])):
            if package.endswith("tables") or module == "table":
                importlib.import_module(f"{package}.{module}")
    ordered = sorted(BENCHMARKS.values(), key=lambda one: (bool(one.uses), one.name))
    return {one.name: one for one in ordered}


# -- results


@dataclass(frozen=True)
class Result:
    """What a benchmark has measured, and where."""

    name: str
    rows: list[Row]
    notes: list[str]
    command: str
    synthetic: bool
    """Whether it was a trial, because no folder with pages was given: such figures do not belong into documents."""
    rounds: int
    date: str = field(default_factory=lambda: date.today().isoformat())
    seconds: float = 0.0
    machine: Mapping[str, Any] = field(default_factory=lambda: machine())

    def missed(self) -> list[str]:
        """Targets that are not met."""
        cells = ((row, heading, cell) for row in self.rows for heading, cell in row.cells.items())
        return [f"{r.name}, {h}: {c}" for r, h, c in cells if isinstance(c, Target) and not c.is_met]

    def write(self, path: Path) -> None:
        """As JSON, all or nothing."""
        rows = [{"name": row.name, "caption": row.caption, "cells": _to_json(row.cells)} for row in self.rows]
        told = {**{name: value for name, value in vars(self).items() if name != "rows"}, "rows": rows}
        with replacing(path) as stream:
            stream.write((json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Result:
        """A result that was kept."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            rows = [Row(row["name"], _from_json(row["cells"]), row["caption"]) for row in told.pop("rows")]
            return cls(rows=rows, **told)
        except FileNotFoundError as error:
            raise DataError(f"{path} does not exist. Run its benchmark: {path.stem}", path=path) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is damaged ({error}). Remove it, and rerun its benchmark", path=path) from error


def _to_json(cells: Mapping[str, Cell]) -> dict[str, Any]:
    return {
        heading: asdict(cell) if isinstance(cell, Figure | Target) else cell.item() if hasattr(cell, "item") else cell
        for heading, cell in cells.items()
    }


def _from_json(cells: Mapping[str, Any]) -> dict[str, Cell]:
    def cell(told: Any) -> Cell:
        if not isinstance(told, dict):
            return told  # type: ignore[no-any-return]
        measured = told.get("measured") and Figure(**told["measured"])
        return (Target if "at_least" in told else Figure)(**told | {"measured": measured})

    return {heading: cell(told) for heading, told in cells.items()}


def machine() -> dict[str, Any]:
    """What the figures depend on, apart from the program."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        model = found[1] if found else model
    return {
        "cores": usable_cores(),
        "processor": model,
        "memory_gb": round(total_memory() / 1e9, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def show(result: Result) -> None:
    """The tables in the terminal."""
    for caption, rows in Place("").tables(result.rows).items():
        headings = columns_of(rows)
        table = Table(title=caption or result.name, title_justify="left")
        table.add_column("")
        for heading in headings:
            table.add_column(heading, justify="right")
        for row in rows:
            table.add_row(row.name, *(row.shown(heading) for heading in headings))
        console.print(table, markup=False)
    for note in result.notes:
        console.print(note, markup=False, soft_wrap=True)


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Every heading once, in the order in which rows name them."""
    return list(dict.fromkeys(heading for row in rows for heading in row.cells))


# -- measuring


def pin_threads(threads: int | None) -> None:
    """The same chances for every contender: this many threads, and malloc that keeps freed pages."""
    from ocr.malloc import keep_freed_memory

    keep_freed_memory()
    if threads is None:
        return
    import cv2
    import torch

    cv2.setNumThreads(threads)
    torch.set_num_threads(threads)


def thread_variables(threads: int | None) -> dict[str, str]:
    """For the environment of a process, before it imports anything."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {} if threads is None else dict.fromkeys(names, str(threads))


def fresh_process(threads: int | None = 1) -> ProcessPoolExecutor:
    """A process that has imported nothing: `with fresh_process() as process: process.submit(function, ...).result()`.

    Where a benchmark is about memory, or about a second run. Functions and what they return must be picklable.
    """
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=pin_threads, initargs=(threads,))


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """The same, returning its seconds."""

    def measured() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return measured


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each contender returns for each of its rounds; they take turns, after a first round that is not measured."""
    told: dict[str, list[float]] = {name: [] for name in contenders}
    with Progress(console=console, transient=True, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task("rounds", total=(rounds + 1) * len(contenders))
        for turn in range(rounds + 1):
            for name, run in contenders.items():
                progress.update(task, description=name)
                gc.collect()
                figure = run()
                if turn:
                    told[name].append(figure)
                progress.advance(task)
    return told


def fastest(told: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The smallest of each contender: of times of fixed work, what the machine can do without disturbance."""
    return {name: min(figures) for name, figures in told.items()}


def rows_by_name(rows: Iterable[Row]) -> dict[str, Row]:
    """For tables that are computed from others."""
    return {row.name: row for row in rows}
