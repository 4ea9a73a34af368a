"""The campaign itself: every class gets its share of the cases, in blocks that take turns."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.campaign.block import BlockProcess, Found, Work
from tests.campaign.cases import CLASSES, Fault, Parser
from tests.campaign.fuzzing import BLOCK

ROOMS: dict[str, tuple[str, ...]] = {
    "faults": (
        *("cache_files", "shard_files", "kills", "training", "disks", "clocks", "lines", "sharing", "edits"),
        *("model_files", "service"),
    ),
    "parsers": ("annotations", "shards", "cache", "maps", "images", "models", "results"),
}
FAULTS_AT_ONCE = 100
POLL_SECONDS = 0.05
REFRESH_SECONDS = 0.5
MAX_CRASHES = 5
SHOWN = 5
"""Findings of a block that are printed; the result has all."""


def load_classes() -> None:
    """Import every file of faults and parsers, which register themselves."""
    for room, names in ROOMS.items():
        for name in names:
            import_module(f"tests.campaign.{room}.{name}")


@dataclass
class Line:
    """One class, and what became of it so far."""

    cls: Fault | Parser
    wanted: int
    found: Found = field(default_factory=Found)
    missing: str = ""
    _crashes: int = 0
    """Processes one after the other that did not come beyond their first case."""

    @property
    def left(self) -> float:
        """The share that is still to be done."""
        return 1 - self.found.cases / self.wanted if self.wanted else 0.0

    def next(self, seed: int) -> Work:
        """The next block, which ends where a corpus does."""
        first = self.found.cases
        size = BLOCK - first % BLOCK if isinstance(self.cls, Parser) else FAULTS_AT_ONCE
        return Work(self.cls, seed, first, min(self.wanted, first + size), frozenset(self.found.ended_at))

    def add(self, found: Found) -> None:
        self.found.cases += found.cases
        self._crashes = self._crashes + 1 if found.cases <= 1 and found.findings else 0
        if self._crashes >= MAX_CRASHES:
            self.wanted = self.found.cases
        self.found.read += found.read
        self.found.lines = max(self.found.lines, found.lines)
        self.found.seconds += found.seconds
        self.found.tally.add(found.tally.to_dict())
        self.found.findings += found.findings
        self.found.ended_at |= found.ended_at


def plan(faults: int, inputs: int, only: Sequence[str]) -> list[Line]:
    """How many cases of every class: its share of all faults, or of all inputs."""
    lines = []
    for kind, total in ((Fault, faults), (Parser, inputs)):
        chosen = [cls for cls in CLASSES.values() if isinstance(cls, kind) and (not only or cls.name in only)]
        missing = {cls.name: next((name for name in cls.needs if find_spec(name) is None), "") for cls in chosen}
        shares = sum(cls.share for cls in chosen if not missing[cls.name])
        for cls in chosen:
            wanted = 0 if missing[cls.name] else max(1, -(-total * cls.share // shares)) if total else 0
            lines.append(Line(cls, wanted, missing=missing[cls.name]))
    return lines


class Campaign:
    """Runs blocks, one process at a time, until all is done or the time is up."""

    def __init__(self, lines: list[Line], seed: int, folder: Path, seconds: float | None, console: Console) -> None:
        self.lines, self.seed, self.folder, self.console = lines, seed, folder, console
        self._end = None if seconds is None else time.monotonic() + seconds
        self._blocks = 0

    def run(self) -> None:
        gc.collect()
        gc.freeze()  # What is not looked at stays shared with the processes of blocks.
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        # Without a thread of its own: this process forks.
        with Progress(*columns, console=self.console, auto_refresh=False, transient=True) as progress:
            bar = progress.add_task("", total=sum(line.wanted for line in self.lines))
            done, shown = 0, 0.0
            for line, block in self._blocks_in_turn():
                progress.update(bar, description=f"{line.cls.name:<26}", completed=done, refresh=True)
                while not block.poll():
                    if time.monotonic() - shown > REFRESH_SECONDS:
                        shown = time.monotonic()
                        progress.update(bar, completed=done + block.number - block.work.first, refresh=True)
                    if self._is_over():
                        block.kill()
                        break
                    time.sleep(POLL_SECONDS)
                line.add(block.found)
                done = sum(each.found.cases for each in self.lines)
                for finding in block.found.findings[:SHOWN]:
                    self.console.print(f"[red]{finding['what']}[/] {finding['case']}", highlight=False)
                    self.console.print(finding["why"], markup=False, highlight=False)

    def _is_over(self) -> bool:
        return self._end is not None and time.monotonic() > self._end

    def _blocks_in_turn(self) -> Iterator[tuple[Line, BlockProcess]]:
        """The class of which most is left is next, so that an early end has a part of all."""
        while not self._is_over():
            line = max(self.lines, key=lambda line: line.left)
            if line.left <= 0:
                return
            self._blocks += 1
            folder = self.folder / f"{line.cls.name}-{self._blocks}"
            yield line, BlockProcess(line.next(self.seed), folder)
            shutil.rmtree(folder, ignore_errors=True)


def sums(lines: Sequence[Line]) -> dict[str, Any]:
    """Over all classes."""
    return {
        "faults": sum(line.found.cases for line in lines if isinstance(line.cls, Fault)),
        "inputs": sum(line.found.cases for line in lines if isinstance(line.cls, Parser)),
        "findings": sum(len(line.found.findings) for line in lines),
    }
