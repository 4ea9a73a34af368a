"""The advisor against known answers: pipelines with one known bottleneck, and a real model; predicted and run.

python benchmarks/advisor.py                              # synthetic pages; needs an otherwise idle machine
python benchmarks/advisor.py --data DIR model=lite        # real pages and the model of these settings

Each pipeline is measured on a few pages. Its bottleneck must be named; the epoch as it is, and the epoch without the
stage that holds it up, must come within 15 % of what they then take. With --data, every remedy of `ocr advise` for
training, those of the model included, is predicted and run: the mean absolute error must be at most 12 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "advisor")]
from artificial import Burn, HoldInterpreter, Sleep, open_pages

from benchmarks import measure
from benchmarks.measure import console
from ocr.advisor.measure.model_step import SleepingStep
from ocr.advisor.measure.other_processes import CpuOfOthers, warning
from ocr.advisor.measure.stage_demands import measure_demands
from ocr.advisor.measure.timed_batches import run_epoch
from ocr.advisor.model.queueing import DISK, GIL, Pipeline
from ocr.advisor.remedies.advisor import AdviseSettings, Advisor
from ocr.advisor.report.advice_screen import print_advice
from ocr.jobs.compose import compose_training
from ocr.loader import Loader
from ocr.system import free_memory, usable_cores
from ocr.tools.synth import synthesize

WITHIN = 0.15
MEAN_ERROR, MIN_CONFIGURATIONS = 0.12, 10
BATCH, WORKERS, CORES = 8, 2, 2
# stages, seconds of the disk, seconds of a step, resource, stage
CASES: dict[str, tuple[list[Any], float, float, str, str]] = {
    "sleep": ([Sleep(0.08), Burn(0.02)], 0.0, 0.02, "workers", "Sleep"),
    "CPU burn": ([Burn(0.05), Sleep(0.004)], 0.0, 0.02, "cores", "Burn"),
    "GIL": ([HoldInterpreter(0.04), Burn(0.02)], 0.0, 0.02, GIL, "HoldInterpreter"),
    "slow disk": ([Burn(0.02)], 0.05, 0.02, DISK, "source"),
    "slow consumer": ([Burn(0.02)], 0.0, 0.6, "model", ""),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each pipeline (default: 3)")
    parser.add_argument("--data", type=Path, help="a folder of pages, to try all remedies on with the real model")
    parser.add_argument("--skip", action="append", default=[], help="leave out remedies with this word in their name")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings as for ocr train, with --data")
    options = parser.parse_args()
    if options.data is not None:
        return try_remedies(options.data, options.overrides, tuple(options.skip))
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as folder:
        data = Path(folder) / "data"
        synthesize(data, train=64, val=1, seed=0, megapixels=(0.1, 0.2))
        rows = [run_case(name, data, options.rounds) for name in CASES]
    table = Table(title=f"64 pages, {WORKERS} workers", title_justify="left")
    for heading in ("bottleneck", "named", "predicted", "measured", "error", "without it", "measured", "error"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row[0])
    console.print(table)
    good = all(row[1] for row in rows)
    console.print("every answer is right" if good else "some answers are wrong")
    return 0 if good else 1


def try_remedies(data: Path, overrides: list[str], skip: tuple[str, ...]) -> int:
    """All remedies for training on these pages, predicted and run."""
    given = [f"dataset_base_path={data}", *overrides]
    settings = AdviseSettings(skip=skip)
    advisor = Advisor(lambda more: compose_training([*given, *more]), settings, usable_cores(), free_memory())
    others = CpuOfOthers()
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as folder, console.status("") as status:
        advice = advisor.advise(Path(folder), status.update)
        advisor.verify(advice, Path(folder), status.update)
    print_advice(advice, console, max_remedies=len(advice.remedies))
    console.print(warning(others.share()) or "")
    of_the_model = {remedy.name for remedy in advice.remedies if remedy.changes == "consumer"}
    count = sum(name in of_the_model for name, *_ in advice.verified)
    console.print(f"{len(advice.verified)} configurations, {count} of them of the model; target: {MEAN_ERROR:.0%}")
    enough = len(advice.verified) >= MIN_CONFIGURATIONS and count > 0
    return 0 if enough and (advice.mean_error or 0.0) <= MEAN_ERROR else 1


def run_case(name: str, data: Path, rounds: int) -> tuple[list[str], bool]:
    """A row of the table, and whether all of it is right."""
    stages, disk, step_seconds, bottleneck, stage = CASES[name]
    dataset = open_pages(data, *stages, disk_seconds=disk)
    demands = [one for one in measure_demands(dataset, range(12), WORKERS, CORES).demands if one.name != "device"]
    step = SleepingStep(step_seconds)
    line = Pipeline(tuple(demands), step.consumer, len(dataset), BATCH, WORKERS, CORES)
    found = line.predict()
    named = (found.bottleneck, found.stage) == (bottleneck, stage)
    measured = epoch(dataset, step, rounds)
    if name == "slow consumer":
        without, faster = line, dataset
        step = SleepingStep(0.0)
        without = Pipeline(line.demands, step.consumer, len(dataset), BATCH, WORKERS, CORES)
    else:
        without = line.without(stage)
        kept = [one for one in stages if type(one).__name__ != stage]
        faster = open_pages(data, *kept)
        if stage == "source":
            cost = measure_demands(faster, range(12), WORKERS, CORES).demands[0]
            without = Pipeline((cost, *without.demands), line.consumer, len(dataset), BATCH, WORKERS, CORES)
    predicted, then = without.predict().epoch_seconds, epoch(faster, step, rounds)
    errors = [found.epoch_seconds / measured - 1, predicted / then - 1]
    cells = [
        name,
        f"{found.bottleneck}: {found.stage or 'the step'}",
        f"{found.epoch_seconds:.2f} s",
        f"{measured:.2f} s",
    ]
    cells += [f"{errors[0]:+.0%}", f"{predicted:.2f} s", f"{then:.2f} s", f"{errors[1]:+.0%}"]
    return cells, named and max(map(abs, errors)) <= WITHIN


def epoch(dataset: Any, step: SleepingStep, rounds: int) -> float:
    """The fastest of a few epochs."""
    loader = Loader(dataset, BATCH, WORKERS)
    return min(run_epoch(loader, step)[0] for _ in range(rounds))


if __name__ == "__main__":
    measure.exit_with(main)
