"""Side-by-side timing: contenders alternate in one process, and the fastest round of each counts."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ocr.pipeline.image_header import Header

TABLES_FILE = "BENCHMARK_TABLES"
"""Environment variable: a file that gets every table, one line of JSON each. benchmarks/figures.py sets it."""


class RecordingConsole(Console):
    """Shows tables, and writes them into a file if one is asked for: documents quote what a benchmark has shown."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As usual, and the tables once more as text."""
        super().print(*objects, **options)
        if file := os.environ.get(TABLES_FILE):
            with open(file, "a", encoding="utf-8") as stream:
                for table in filter(lambda shown: isinstance(shown, Table), objects):
                    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
                    told = {
                        "title": _plain(table.title or ""),
                        "headings": [_plain(column.header) for column in table.columns],
                        "rows": list(zip(*columns, strict=True)),
                    }
                    stream.write(json.dumps(told) + "\n")


def _plain(cell: Any) -> str:
    """Without the marks of colours."""
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


console = RecordingConsole()


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark; a known error is one line."""
    from ocr.errors import GlyphFeedError

    try:
        sys.exit(main())
    except GlyphFeedError as error:
        sys.exit(f"error: {error}")


def add_data_options(parser: argparse.ArgumentParser, rounds: int, split: str = "val") -> None:
    """The options that every benchmark takes."""
    parser.add_argument("--data", type=Path, default=None, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--split", default=split, help=f"split to read (default: {split})")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of each contender (default: {rounds})")


def data_or_synthetic(data: Path | None, pages: int = 24, train: int = 0) -> Path:
    """The given dataset, or one made now."""
    if data is not None:
        return data
    import tempfile

    from ocr.tools.synth import synthesize

    folder = Path(tempfile.mkdtemp(prefix="glyphfeed-bench-"))
    console.print(f"no --data: making {train + pages} synthetic pages")
    synthesize(folder, train=train, val=pages, seed=0, megapixels=(0.5, 4.0))
    return folder


def take_turns(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest round of each; one unmeasured round warms caches and compiles kernels."""
    best = dict.fromkeys(contenders, float("inf"))
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("rounds", total=(rounds + 1) * len(contenders))
        for turn in range(rounds + 1):
            for name, run in contenders.items():
                progress.update(task, description=name)
                start = time.perf_counter()
                run()
                seconds = time.perf_counter() - start
                if turn:
                    best[name] = min(best[name], seconds)
                progress.advance(task)
    return best


def show(title: str, best: dict[str, float], pages: int, baseline: str) -> None:
    """One row per contender: time, throughput, and how many times the baseline's speed."""
    table = Table(title=title, title_justify="left")
    table.add_column("contender")
    for heading in ("ms a page", "pages/s", f"times {baseline}"):
        table.add_column(heading, justify="right")
    for name, seconds in best.items():
        ratio = best[baseline] / seconds
        table.add_row(name, f"{seconds / pages * 1e3:.2f}", f"{pages / seconds:.0f}", f"{ratio:.1f} x")
    console.print(table)


def time_rounds(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each contender reports for each of its rounds; they alternate, after one unmeasured round."""
    told: dict[str, list[float]] = {name: [] for name in contenders}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("rounds", total=(rounds + 1) * len(contenders))
        for _ in range(rounds + 1):
            for name, run in contenders.items():
                progress.update(task, description=name)
                told[name].append(run())
                progress.advance(task)
    return {name: figures[1:] for name, figures in told.items()}


@dataclass(frozen=True)
class Goal:
    """A figure for each form of the same thing, with its lower or upper bound."""

    name: str
    baseline: str
    measured: Sequence[str]
    figures: Sequence[float]
    target: float | tuple[float, ...] | None = None
    """For all forms, or one per form."""
    at_most: bool = False
    unit: str = " x"

    def is_met(self, form: int) -> bool:
        """Whether one of the forms reaches the target; True if no target is set."""
        if self.target is None:
            return True
        target = self.target[form] if isinstance(self.target, tuple) else self.target
        return self.figures[form] <= target if self.at_most else self.figures[form] >= target

    def show(self, figure: float) -> str:
        """With the significant digits only."""
        return f"{figure:.{0 if abs(figure) >= 20 else 2 if abs(figure) < 2 else 1}f}{self.unit}"

    @property
    def bound(self) -> str:
        """The target as it is shown."""
        if self.target is None:
            return ""
        targets = self.target if isinstance(self.target, tuple) else (self.target,)
        return f"{'≤' if self.at_most else '≥'} {', '.join(f'{target:g}' for target in targets)}{self.unit}"


def show_goals(title: str, forms: Sequence[str], goals: Sequence[Goal]) -> None:
    """One row per goal, and one line about those missed."""
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("")
    table.add_column("against", justify="right", no_wrap=True)
    for form in forms:
        table.add_column(form, justify="right", no_wrap=True)
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("met")
    for goal in goals:
        cells = [f"{what}\n{goal.show(figure)}" for what, figure in zip(goal.measured, goal.figures, strict=True)]
        met = [form for number, form in enumerate(forms) if goal.is_met(number)]
        verdict = "yes" if len(met) == len(forms) else ", ".join(met) or "no"
        table.add_row(goal.name, goal.baseline, *cells, goal.bound, verdict if goal.target else "")
    console.print(table)
    for number, form in enumerate(forms):
        missed = [goal.name for goal in goals if not goal.is_met(number)]
        console.print(f"{form}: {'missed: ' + '; '.join(missed) if missed else 'all targets are met'}")


def waiting_percent(batches: Iterable[object], step_seconds: float, epochs: int) -> float:
    """Share of its time that a consumer with this time per batch waits, including the start and end of each epoch."""
    waited, begun = 0.0, time.perf_counter()
    for _ in range(epochs):
        asked = time.perf_counter()
        iterator, batch = iter(batches), None
        while True:
            following = next(iterator, None)
            waited += time.perf_counter() - asked
            if following is None:
                break
            # As in a loop, the previous batch is released here: the consumer's time, not waiting.
            batch = following
            time.sleep(step_seconds)
            asked = time.perf_counter()
        del batch
    return 100 * waited / (time.perf_counter() - begun)


def touch_memory(size: int) -> None:
    """Have the machine provide memory, and give it back for what is measured next.

    A virtual machine gets memory that was not in use for a few seconds from its host anew, at a tenth of the speed.
    """
    np.ones(size, dtype=np.uint8)


def drop_file(file: Path) -> None:
    """Leave nothing of a file in memory."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def drop_files(folder: Path) -> None:
    """Leave nothing of the files of a folder in memory; pages that are still mapped stay."""
    gc.collect()
    for path in folder.rglob("*"):
        if path.is_file():
            drop_file(path)


def copy_seconds(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> float:
    """Copy all of the source, piece by piece, to the same target."""
    start = time.perf_counter()
    for first in range(0, len(source), len(target)):
        piece = source[first : first + len(target)]
        np.copyto(target[: len(piece)], piece)
    return time.perf_counter() - start


def decode_seconds(encoded: list[bytes], headers: list[Header], size: int, threads: int) -> float:
    """Only decode every page, at the scale that is needed."""
    from ocr.pipeline.decode import decode_pixels

    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        list(pool.map(lambda data, header: decode_pixels(data, header, "", size)[1], encoded, headers))
        return time.perf_counter() - start
