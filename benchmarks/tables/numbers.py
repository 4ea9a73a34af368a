"""The numbers to hold: what a change of the core must not make slower, here and in another checkout, in turns.

`--set numbers.against=DIR` measures the checkout DIR in the same run, such as a worktree of the commit before;
`--set 'numbers.settings={"cache": "auto"}'` are settings of its datasets with a cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import (
    ROOT,
    Cell,
    Data,
    Figure,
    Row,
    Target,
    benchmark,
    fastest,
    interleave,
    thread_variables,
    timed,
)
from benchmarks.loaders import drop_files, split_paths
from benchmarks.numbers_worker import ALONE, MARK, SIZE
from benchmarks.peers import ENVIRONMENT
from benchmarks.reference import ReferenceDataset
from ocr.errors import DataError

HERE, AGAINST, PLAIN = "this checkout", "the other one", "plain pipeline"
SLOWER = 1.05
"""At most this many times the time of the other checkout."""


class Held(NamedTuple):
    """A number to hold."""

    name: str
    unit: str
    per_page: float
    """At most this much for each page of the split."""
    split: str | None
    """None: it is one of a page already."""


HELD = {
    "uncached": Held("validation, no cache", "s", 1.9 / 404, "val"),
    "filling": Held("filling the cache", "s", 1.25 * 1.9 / 404, "val"),
    "warm": Held("validation, warm", "s", 0.25 / 404, "val"),
    "kept": Held("kept per page", "B", 175e3, None),
    "training": Held("training epoch, augmented, warm", "s", 0.27 / 140, "train"),
    "second": Held("first epoch of a second run", "s", 0.44 / 140, "train"),
}
COLD, COLD_AT_LEAST = "cold, one thread", 4.8
Contender = Callable[[], float]


@benchmark("numbers", table="results#numbers", rounds=5)
def numbers(data: Data) -> Iterator[Row | str]:
    """The numbers to hold, of this checkout and of `--set numbers.against=DIR`."""
    other = data.setting("numbers.against", "")
    settings = json.loads(data.setting("numbers.settings", "{}"))
    counts = {split: len(ReferenceDataset(*split_paths(data.receipts, split))) for split in ("train", "val")}
    contenders: dict[str, Contender] = {PLAIN: timed(lambda: plain_pages(data))}
    with ExitStack() as stack:
        for name, root in ((HERE, ROOT), *([(AGAINST, Path(other).resolve())] if other else [])):
            task = {"data": str(data.receipts), "cache": str(data.work_folder / name / "cache")}
            contenders |= contenders_of(name, root, task | {"settings": settings if name == AGAINST else {}}, stack)
        best = fastest(interleave(contenders, data.rounds))
    caption = f"{counts['val']} pages to validate and {counts['train']} to train on, fastest of {data.rounds} rounds"
    for measure, held in HELD.items():
        here, bound = best[f"{HERE}, {measure}"], held.per_page * counts.get(held.split or "", 1)
        cells: dict[str, Cell] = {HERE: Target(here, held.unit, at_most=bound)}
        yield Row(held.name, cells | compared(best, measure, held.unit), caption)
    plain, here = best[PLAIN] / min(ALONE, counts["val"]), best[f"{HERE}, alone"]
    ratio = Target(plain / here, f" x {PLAIN}", at_least=COLD_AT_LEAST, measured=Figure(here, "s"))
    yield Row(f"a page, {COLD}", {HERE: ratio} | compared(best, "alone", "s"), caption)


def compared(best: dict[str, float], measure: str, unit: str) -> dict[str, Cell]:
    """What the other checkout takes, and how many times as long this one takes."""
    there = best.get(f"{AGAINST}, {measure}")
    if there is None:
        return {}
    ratio = best[f"{HERE}, {measure}"] / there
    return {AGAINST: Figure(there, unit), "against it": Target(ratio, " x", at_most=SLOWER)}


def plain_pages(data: Data) -> None:
    """As many pages in one thread of the plain pipeline."""
    dataset = ReferenceDataset(*split_paths(data.receipts, "val"), SIZE)
    for index in range(min(ALONE, len(dataset))):
        _ = dataset[index]


def contenders_of(name: str, root: Path, task: dict[str, Any], stack: ExitStack) -> dict[str, Contender]:
    """The numbers of a checkout, in one process but for its second runs."""
    Path(task["cache"]).mkdir(parents=True)
    ask = stack.enter_context(checkout(root, task))
    contenders = {f"{name}, {measure}": lambda measure=measure: ask(measure) for measure in (*HELD, "alone")}

    def second() -> float:
        with checkout(root, task) as ask_again:
            drop_files(Path(task["data"]))
            drop_files(Path(task["cache"]))
            return ask_again("second")

    ask("second")  # The first run, which fills the cache.
    return contenders | {f"{name}, second": second}


@contextmanager
def checkout(root: Path, task: dict[str, Any]) -> Iterator[Callable[[str], float]]:
    """A process that imports `ocr` from a checkout: a function from the name of a number to the number."""
    environment = os.environ | ENVIRONMENT | thread_variables(1) | {"PYTHONPATH": str(root)}
    command = [sys.executable, str(ROOT / "benchmarks/numbers_worker.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=task["cache"]
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(task) + "\n")

        def ask(name: str) -> float:
            process.stdin.write(name + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            for line in process.stdout:  # type: ignore[union-attr]
                if line.startswith(MARK):
                    return float(line[len(MARK) :])
            raise DataError(f"{root}: the process ended with {process.wait()}, measuring {name}", path=root, value=name)

        yield ask
        process.stdin.close()
