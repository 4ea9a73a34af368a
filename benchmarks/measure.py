"""Side-by-side timing: contenders take turns in one process, and the fastest round of each counts."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

console = Console()


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark; a known error is one line."""
    from ocr.errors import GlyphFeedError

    try:
        sys.exit(main())
    except GlyphFeedError as error:
        sys.exit(f"error: {error}")


def add_data_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """The options that every benchmark takes."""
    parser.add_argument("--data", type=Path, default=None, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--split", default="val", help="split to read (default: val)")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of each contender (default: {rounds})")


def data_or_synthetic(data: Path | None, pages: int = 24) -> Path:
    """The given dataset, or one made now."""
    if data is not None:
        return data
    import tempfile

    from ocr.tools.synth import synthesize

    folder = Path(tempfile.mkdtemp(prefix="glyphfeed-bench-"))
    console.print(f"no --data: making {pages} synthetic pages")
    synthesize(folder, train=0, val=pages, seed=0, megapixels=(0.5, 4.0))
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
    """One row a contender: time, throughput, and how many times the baseline's speed."""
    table = Table(title=title, title_justify="left")
    table.add_column("contender")
    for heading in ("ms a page", "pages/s", f"times {baseline}"):
        table.add_column(heading, justify="right")
    for name, seconds in best.items():
        ratio = best[baseline] / seconds
        table.add_row(name, f"{seconds / pages * 1e3:.2f}", f"{pages / seconds:.0f}", f"{ratio:.1f} x")
    console.print(table)
