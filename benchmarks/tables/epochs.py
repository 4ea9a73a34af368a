"""Whole epochs against the plain pipeline, with the numbers to hold, here and in another checkout, all in turns.

The plain pipeline is Pillow, Albumentations, maps in NumPy and torch's DataLoader, with the same pages, order and
number of workers. `--set epochs.against=DIR` measures the checkout DIR in the same run, such as a worktree of the
commit before; `--set 'epochs.settings={"cache": "auto"}'` are settings of its datasets with a cache.
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

from benchmarks.epochs_worker import ALONE, MARK, waiting_percent
from benchmarks.harness import (
    ROOT,
    Cell,
    Data,
    Figure,
    Place,
    Row,
    Target,
    benchmark,
    fastest,
    figure,
    interleave,
    thread_variables,
    timed,
)
from benchmarks.loaders import (
    BATCH,
    SIZE,
    WORKERS,
    Transfer,
    drop_files,
    epoch_seconds,
    pages,
    quick_epoch,
    reference,
    reference_training,
    split_paths,
)
from benchmarks.peers import ENVIRONMENT
from benchmarks.reference import ReferenceDataset, compare_batches
from ocr.errors import DataError
from ocr.loader import Loader
from ocr.pipeline.targets import Targets

HERE, AGAINST, PLAIN, FASTER = "GlyphFeed", "the other checkout", "plain pipeline", "times as fast"
SLOWER = 1.05
"""At most this many times the time of the other checkout."""
Contender = Callable[[], float]


class Measure(NamedTuple):
    """A row: a method of benchmarks/epochs_worker.py, and what it is judged by."""

    name: str
    per_page: float
    """At most this much for each page of the split; in percent and bytes at most this much."""
    split: str = ""
    unit: str = "s"
    plain: str = ""
    """The contender of the plain pipeline."""
    faster: float | None = None
    """At least so many times as fast."""


MEASURES = {
    "uncached": Measure("validation epoch, no cache", 1.9 / 404, "val", plain="cold", faster=9),
    "filling": Measure("validation epoch, filling the cache", 1.25 * 1.9 / 404, "val", plain="cold", faster=5),
    "warm": Measure("validation epoch, warm", 0.25 / 404, "val", plain="cached", faster=4),
    "training": Measure("training epoch, augmented, warm", 0.27 / 140, "train", plain="training", faster=6),
    "second": Measure("first epoch of a second run", 0.44 / 140, "train"),
    "alone": Measure("a page, cold, one thread", 0.006, plain="alone", faster=4.8),
    "waiting": Measure("waiting of a consumer of 20 ms per batch", 1, unit=" %", plain="waiting"),
    "kept": Measure("kept per page", 175e3, unit="B"),
}


@benchmark(
    "epochs",
    table=["results#epochs", Place("README#epochs", "^(v|t)", (PLAIN, HERE, FASTER), with_targets=False)],
    rounds=5,
)
def epochs(data: Data) -> Iterator[Row | str]:
    """Epochs against Pillow, Albumentations, NumPy maps and torch's DataLoader; `--set epochs.against=CHECKOUT`."""
    other, settings = data.setting("epochs.against", ""), json.loads(data.setting("epochs.settings", "{}"))
    # The plain pipeline comes first: its workers are forked before threads get busy.
    contenders, kept = plain_contenders(data)
    with ExitStack() as stack:
        for name, root in ((HERE, ROOT), *([(AGAINST, Path(other).resolve())] if other else [])):
            task = {"data": str(data.receipts), "cache": str(data.work_folder / name / "cache")}
            contenders |= contenders_of(name, root, task | {"settings": settings if name == AGAINST else {}}, stack)
        best = fastest(interleave(contenders, data.rounds))
    counts = {split: len(pages(data.receipts, split)) for split in ("val", "train")}
    caption = (
        f"{counts['val']} pages to validate and {counts['train']} to train on, {SIZE}x{SIZE}, batch size {BATCH}, "
        f"{WORKERS} workers, fastest of {data.rounds} rounds"
    )
    for method, measure in MEASURES.items():
        here, bound = best[f"{HERE}, {method}"], measure.per_page * counts.get(measure.split, 1)
        cells: dict[str, Cell] = {PLAIN: None, HERE: Target(here, measure.unit, at_most=bound), FASTER: None}
        if measure.plain:
            plain = best[f"{PLAIN}, {measure.plain}"]
            cells[PLAIN] = Figure(plain, measure.unit)
            cells[FASTER] = figure(plain / here, " x", at_least=measure.faster)
        if other:
            there = best[f"{AGAINST}, {method}"]
            cells |= {AGAINST: Figure(there, measure.unit), "against it": Target(here / there, " x", at_most=SLOWER)}
        yield Row(measure.name, cells, caption)
    exact = pages(data.receipts, form="float", image_loading_config={"scaled": "off"}, targets=Targets(min_text_size=0))
    yield f"With decode.scaled=off, {compare_batches(kept, Loader(exact, BATCH, WORKERS))}."


def plain_contenders(data: Data) -> tuple[dict[str, Contender], Any]:
    """The same numbers of the plain pipeline, and its batches."""
    plain, kept = reference(data.receipts), reference(data.receipts, keep_items=True)
    training, transfer = reference_training(data.receipts), Transfer()
    alone = ReferenceDataset(*split_paths(data.receipts, "val"), SIZE)
    count = min(ALONE, len(alone))
    contenders = {
        f"{PLAIN}, cold": lambda: epoch_seconds(plain, transfer),
        f"{PLAIN}, cached": lambda: quick_epoch(kept, transfer),
        f"{PLAIN}, training": lambda: epoch_seconds(training, transfer),
        f"{PLAIN}, alone": lambda: timed(lambda: [alone[index] for index in range(count)])() / count,
        f"{PLAIN}, waiting": lambda: waiting_percent(kept),
    }
    return contenders, kept


def contenders_of(name: str, root: Path, task: dict[str, Any], stack: ExitStack) -> dict[str, Contender]:
    """The numbers of a checkout, in one process but for its second runs."""
    Path(task["cache"]).mkdir(parents=True)
    ask = stack.enter_context(checkout(root, task))
    contenders = {f"{name}, {method}": lambda method=method: ask(method) for method in MEASURES}

    def second() -> float:
        with checkout(root, task) as ask_again:
            drop_files(Path(task["data"]))
            drop_files(Path(task["cache"]))
            return ask_again("second")

    ask("second")  # The first run, which fills the cache.
    return contenders | {f"{name}, second": second}


@contextmanager
def checkout(root: Path, task: dict[str, Any]) -> Iterator[Callable[[str], float]]:
    """A process that imports `ocr` from a checkout: a function from the name of a method to its number."""
    environment = os.environ | ENVIRONMENT | thread_variables(1) | {"PYTHONPATH": str(root)}
    command, pipe = [sys.executable, str(ROOT / "benchmarks/epochs_worker.py")], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=task["cache"]) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(task) + "\n")

        def ask(method: str) -> float:
            process.stdin.write(method + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            for line in process.stdout or ():
                if line.startswith(MARK):
                    return float(line[len(MARK) :])
            problem = f"{root}: the process ended with {process.wait()}, measuring {method}"
            raise DataError(problem, path=root, value=method)

        try:
            yield ask
        finally:
            process.terminate()  # Workers of the plain pipeline have its input open too.
