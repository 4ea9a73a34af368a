"""How many small mistakes the tests notice: a seeded sample of mutants, each in a scratch copy of the repository.

python benchmarks/mutants.py                       # 300 mutants; goes on where an earlier run was stopped
python benchmarks/mutants.py --count 60 --seed 1   # another, smaller sample
python benchmarks/mutants.py --again               # survivors once more, after tests were added

Every mutant is one changed line. The tests that execute it are run, the nearest and quickest first, until one fails.
What survives and cannot be noticed is listed in benchmarks/mutation/survivors.json with its reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.measure import console, exit_with
from benchmarks.mutation.draw_sample import ROOMS, draw_sample
from benchmarks.mutation.mutate import Mutant
from benchmarks.mutation.reached_lines import ALSO, ReachedLines, measure_lines
from benchmarks.mutation.report import change, reasons, show, write_document
from benchmarks.mutation.scratch import KERNELS, IdleRunners, Scratch, TestRunner
from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.system import usable_cores

TEST_SECONDS, CONTROL_SECONDS = 60, 8
"""Tests per mutant, by the time on the cores that they took when their lines were recorded."""
START_SECONDS, COMPILE_SECONDS, SLOWER = 20, 60, 3
"""A mutant may take this much more time on the cores than its tests do without it; what never ends is noticed."""
ENDED = ("timeout", "crash")
USAGE_ERROR = 4
"""Of pytest: a test that it cannot find, among others."""
CONFTEST = "ImportError while loading conftest"
"""What pytest says of a mutant that what all tests need cannot be imported with."""
Result = dict[str, Any]


class Trial:
    """All mutants of a sample, with what is known of them so far."""

    def __init__(self, runners: Sequence[TestRunner], again: bool = False) -> None:
        """Each runner has a scratch copy of its own; results are kept beside the first."""
        self.runners, self.scratch = runners, runners[0].scratch
        self.file = self.scratch.folder / "results.json"
        known = json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {}
        self.results: dict[str, Result] = known
        if again:
            kept = {each for each, reason in reasons().items() if not reason.is_noticeable}
            self.results = {name: one for name, one in known.items() if one["noticed"] or change(one) in kept}

    def run(self, mutants: list[Mutant], reached: ReachedLines, test_seconds: float = TEST_SECONDS) -> list[Result]:
        """The results, in the order of the mutants."""
        names = [self.identity(mutant) for mutant in mutants]
        missing = {name: mutant for name, mutant in zip(names, mutants, strict=True) if name not in self.results}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
            task = progress.add_task("mutants", total=len(mutants), completed=len(mutants) - len(missing))
            with IdleRunners(self.runners) as idle:
                begun = {
                    idle.submit(self._try, mutant, reached, test_seconds): name for name, mutant in missing.items()
                }
                for done in as_completed(begun):
                    name = begun[done]
                    self.results[name] = done.result()
                    with replacing(self.file) as stream:
                        stream.write((json.dumps(self.results, indent=1) + "\n").encode())
                    progress.update(task, description=f"{missing[name].module}:{missing[name].line}", advance=1)
        return [self.results[name] for name in names]

    def identity(self, mutant: Mutant) -> str:
        """Changes with the module, so that a result is of the code as it is."""
        source = hashlib.sha256((self.scratch.tree / mutant.module).read_bytes()).hexdigest()[:16]
        return f"{mutant.module}:{mutant.start}-{mutant.end} {mutant.replacement} {source}"

    def _try(self, runner: TestRunner, mutant: Mutant, reached: ReachedLines, test_seconds: float) -> Result:
        source = (runner.scratch.tree / mutant.module).read_bytes()
        ordered = reached.tests_of(mutant.module, mutant.statement, mutant.function)
        tests, seconds = affordable(ordered, reached.seconds, test_seconds)
        known = {"module": mutant.module, "line": mutant.line, "before": mutant.before, "after": mutant.after}
        if not tests:
            return known | {"noticed": False, "by": "no test reaches it", "seconds": 0.0}
        limit = START_SECONDS + SLOWER * seconds + (COMPILE_SECONDS if mutant.module.startswith(KERNELS) else 0)
        with runner.scratch.changed(mutant.module, mutant.apply(source)):
            told = runner.run(["-x", *tests], limit)
            if told["status"] == USAGE_ERROR and not _says(runner, CONFTEST):
                # A parameter of a test may be named after what the mutant has changed: all parameters, then.
                tests = [*dict.fromkeys(test.partition("[")[0] for test in tests)]
                told = runner.run(["-x", *tests], SLOWER * limit)
        if told["status"] in ENDED:
            found = {"noticed": True, "by": told["status"]}
        elif failed := told["failed"]:
            found = {"noticed": True, "by": ": ".join(next(iter(failed.items())))}
        elif told["status"] == 0:
            found = {"noticed": False, "by": f"{len(tests)} tests pass"}
        elif _says(runner, CONFTEST):
            found = {"noticed": True, "by": CONFTEST}
        else:
            raise ConfigError(f"pytest ended with status {told['status']}: see {runner.log}")
        return known | found | {"seconds": round(told["took_seconds"], 1)}


def _says(runner: TestRunner, text: str) -> bool:
    """Whether it is in what pytest has printed last."""
    return text in runner.log.read_text(encoding="utf-8", errors="replace")


def affordable(tests: list[str], seconds: dict[str, float], limit: float) -> tuple[list[str], float]:
    """The first tests, at least one, and their seconds."""
    chosen, total = [], 0.0
    for test in tests:
        if chosen and total + seconds[test] > limit:
            continue
        chosen.append(test)
        total += seconds[test]
    return chosen, total


def controls(root: Path, mutants: list[Mutant]) -> list[Mutant]:
    """A comment in the module of the first mutant of each room: a test that notices it would notice anything."""
    found = {}
    for mutant in mutants:
        room = mutant.module.split("/")[1]
        if room not in found:
            end = len((root / mutant.module).read_bytes())
            found[room] = replace(mutant, start=end, end=end, replacement="# Nothing.\n", before="", after="# Nothing.")
    return list(found.values())


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument(
        "--test-seconds",
        type=int,
        default=TEST_SECONDS,
        help=f"CPU time of the tests of a mutant (default: {TEST_SECONDS})",
    )
    parser.add_argument("--room", action="append", choices=ROOMS, help="this room; may be repeated (default: all)")
    parser.add_argument("--mirrored", action="store_true", help="only tests of the rooms' own folders: quicker")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="mutants at once (default: cores)")
    parser.add_argument("--again", action="store_true", help="try survivors again that could be noticed")
    parser.add_argument("--folder", type=Path, default=ROOT / "data" / "mutants", help="work (default: data/mutants)")
    parser.add_argument("--docs", type=Path, help="document whose figures are replaced: docs/reliability.md")
    return parser.parse_args()


def main() -> int:
    options = parse()
    for name in ("count", "test_seconds", "workers"):
        check_integer(f"--{name.replace('_', '-')}", getattr(options, name), 1)
    options.folder.mkdir(parents=True, exist_ok=True)
    rooms = tuple(options.room or ROOMS)
    mutants = draw_sample(ROOT, options.count, options.seed, rooms)
    folders = [options.folder, *(options.folder / f"worker-{number}" for number in range(1, options.workers))]
    scratches = [Scratch(folder) for folder in folders]
    for scratch in scratches:
        scratch.compile_kernels()
    trial = Trial([TestRunner(scratch) for scratch in scratches], options.again)
    try:
        console.print("recording which tests execute which lines (once; then only for test files that change)")
        test_folders = rooms if options.mirrored else (*rooms, *ALSO)
        reached = measure_lines(trial.runners, options.folder / "reached", ROOMS, test_folders)
        for scratch in scratches:
            scratch.remember_kernels()
        unharmed = trial.run(controls(ROOT, mutants), reached, min(CONTROL_SECONDS, options.test_seconds))
        results = trial.run(mutants, reached, options.test_seconds)
    except KeyboardInterrupt:
        console.print(f"interrupted: the same command goes on with what is in {trial.file}")
        return 130
    finally:
        for runner in trial.runners:
            runner.close()
    show(results, unharmed, console)
    if options.docs:
        command = f"python benchmarks/mutants.py --count {options.count} --seed {options.seed}"
        command += "".join(f" --room {room}" for room in options.room or ()) + " --mirrored" * options.mirrored
        command += f" --test-seconds {options.test_seconds}" * (options.test_seconds != TEST_SECONDS)
        write_document(options.docs, results, f"{date.today().isoformat()}: `{command}`")
    return 0 if not any(control["noticed"] for control in unharmed) else 1


if __name__ == "__main__":
    exit_with(main)
