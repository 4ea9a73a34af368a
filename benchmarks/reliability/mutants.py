"""How many small mistakes the tests notice: a seeded sample of mutants, each tried in a scratch copy of the repository.

python -m benchmarks.reliability.mutants                       # 300 mutants; resumes where it was stopped
python -m benchmarks.reliability.mutants --count 60 --seed 1   # another, smaller sample
python -m benchmarks.reliability.mutants --only cache/store    # of the sample, those whose line is like that
python -m benchmarks.reliability.mutants --again               # survivors once more, after tests were added
python -m benchmarks.reliability.mutants --like OLD.json       # the mutants of an earlier result that still exist

Every mutant is one changed line. The tests that execute it are run, the nearest and quickest first, until one fails.
What survives and cannot be noticed is listed in survivors.json with its reason.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import hashlib
import importlib
import json
import math
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.reliability.mutate import ROOMS, Mutant, draw_sample, mutants_of

ROOT = Path(__file__).resolve().parents[2]
REASONS = Path(__file__).with_name("survivors.json")
COPIED = (
    *("benchmarks", "configs", "docs", "examples", "ocr", "runners", "scripts", "tests"),
    *("pyproject.toml", "README.md"),
)
KERNELS = "ocr/geometry/kernels"
TESTED = (*ROOMS, "datasets")
"""Folders of tests/: the datasets are the way to most rooms."""
LIBRARIES = (
    *("albumentations", "cv2", "hydra", "hypothesis", "lightning.pytorch", "matplotlib.pyplot", "numba", "onnxruntime"),
    *("PIL.Image", "pyclipper", "pytest", "rich.progress", "shapely", "simplejpeg", "timm", "torchmetrics", "typer"),
)
"""Imported once, before all forks: `import torch` costs more than most tests. None of them imports `ocr`."""
TEST_SECONDS, CONTROL_SECONDS, FILE_SECONDS = 60, 8, 1800
"""CPU time of the tests of a mutant (as recorded), of a comment, and of a test file that is recorded."""
START_SECONDS, COMPILE_SECONDS, SLOWER = 20, 60, 3
"""A mutant may take this much more CPU time than its tests do without it; what never ends is noticed."""
MIN_WAIT_SECONDS = 300
"""Tests that wait for each other for longer never end; times the load."""
USAGE_ERROR = 4
"""Of pytest: a test that it cannot find, or a conftest.py that cannot be imported."""
CONFTEST = "ImportError while loading conftest"
Answer = dict[str, Any]


# -- a copy of the repository, and tests that run in it


@dataclass
class Task:
    """Tests to run, with a mutant or to record which lines they reach."""

    tests: list[str]
    limit: float
    mutant: Mutant | None = None
    options: Sequence[str] = ()


class Record:
    """A pytest plugin: CPU seconds and outcome of every test, and the lines that it reached."""

    def __init__(self, coverage: Any = None) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # With all processes that the test has waited for: a busy machine changes little.
        self.seconds[nodeid] = -sum(os.times()[:4])
        if self.coverage:
            self.coverage.switch_context(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] += sum(os.times()[:4])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            text = report.longreprtext.splitlines() or [""]
            line = next((line for line in text if line.startswith("E ")), text[0])
            self.failed.setdefault(report.nodeid, line.removeprefix("E ").strip()[:200])

    pytest_collectreport = pytest_runtest_logreport

    def lines(self, tree: Path) -> dict[str, dict[int, list[str]]]:
        """The tests of each line of each module."""
        data = self.coverage.get_data()
        reached = {}
        for path in data.measured_files():
            lines = {line: [*filter(None, tests)] for line, tests in data.contexts_by_lineno(path).items()}
            reached[str(Path(path).relative_to(tree))] = {line: tests for line, tests in lines.items() if tests}
        return reached


class Copy:
    """The repository in a folder of its own, with the machine code of its kernels, and one process that runs tests."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.tree = folder, folder / "tree"
        self.log, self.told = folder / "pytest.txt", folder / "answer.json"
        self.child, self.until, self.task = 0, 0.0, Task([], 0)
        for left in (self.tree, folder / "kernels"):  # Of a run that was killed.
            shutil.rmtree(left, ignore_errors=True)
        self.tree.mkdir(parents=True)
        for source in (root / name for name in COPIED if (root / name).exists()):
            if source.is_dir() and not source.is_symlink():
                unused = shutil.ignore_patterns("*.pyc")  # The machine code of kernels, in the same folders, is used.
                shutil.copytree(source, self.tree / source.name, symlinks=True, ignore=unused)
            else:
                shutil.copy2(source, self.tree, follow_symlinks=False)
        compileall.compile_dir(self.tree / "ocr", quiet=2)

    def start(self, task: Task) -> None:
        """Apply the mutant, and run the tests in a fork."""
        self.task = task
        if task.mutant:
            path = self.tree / task.mutant.module
            self._kept = path.read_bytes(), path.stat()
            self._change(path, task.mutant)
        self.told.unlink(missing_ok=True)
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        self.until = time.monotonic() + max(MIN_WAIT_SECONDS, 3 * task.limit) * load
        self.child = os.fork()
        if self.child == 0:
            os.setsid()
            # A shell lets its background jobs ignore Ctrl-C, and tests send it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(task.limit),) * 2)
            with contextlib.suppress(BaseException):
                self._run_tests()
            os._exit(0)  # Without the exit handlers of the parent.

    def answer(self) -> Answer | None:
        """What pytest found, once it has ended or its time is over."""
        ended = os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if not ended and time.monotonic() < self.until:
            return None
        self.end()
        if ended and self.told.exists():
            told: Answer = json.loads(self.told.read_text(encoding="utf-8"))
            return told
        # The system kills what has used up its CPU time.
        return {"status": "timeout" if not ended or ended.si_status == signal.SIGKILL else "crash", "failed": {}}

    def end(self) -> None:
        """End the process with all that it has left, and take the mutant out."""
        os.killpg(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        if self.task.mutant:
            path, (source, stat) = self.tree / self.task.mutant.module, self._kept
            path.write_bytes(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if (ready := self.folder / "kernels").exists():
                shutil.rmtree(self.tree / KERNELS)
                ready.rename(self.tree / KERNELS)

    def _change(self, path: Path, mutant: Mutant) -> None:
        source = mutant.apply(path.read_bytes())
        if not mutant.module.startswith(KERNELS):
            path.write_bytes(source)
            return
        # Machine code is stale once any file of the folder changes. What cannot call the changed kernel is sealed for
        # the new sources: compiling all takes half a minute, compiling the rest a few seconds. Only forks import `ocr`.
        shutil.copytree(path.parent, self.folder / "kernels", symlinks=True)
        path.write_bytes(source)
        if (child := os.fork()) == 0:
            try:
                self._enter()
                from ocr.geometry.kernels.compiled import DIGEST_BYTES, KernelFiles, sources_digest

                stamp = sources_digest(path.parent)
                changed = callers(path.parent, path.stem)
                for file in path.parent.rglob("*.kernel"):
                    data = file.read_bytes()[DIGEST_BYTES:]
                    if file.name.partition(".")[0] in changed:
                        file.unlink()
                    else:
                        file.write_bytes(KernelFiles(file.parent, "", stamp)._seal(data) + data)
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def _enter(self) -> None:
        """From here on `ocr` is the copy."""
        os.chdir(self.tree)
        os.environ |= {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [str(self.tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
            del sys.modules[name]

    def _run_tests(self) -> None:
        import pytest

        with self.log.open("wb") as stream:
            for descriptor in (1, 2):
                os.dup2(stream.fileno(), descriptor)
        self._enter()
        coverage = None
        if not self.task.mutant:
            from coverage import Coverage

            coverage = Coverage(data_file=None, config_file=False, include=[f"{self.tree}/ocr/*"])
            coverage.start()
        assert Path(str(importlib.import_module("ocr").__file__)).is_relative_to(self.tree)
        options = ["-p", "no:cacheprovider", "--tb=short", f"--basetemp={self.folder / 'pages'}"]
        options += [f"--rootdir={self.tree}", *self.task.options]
        record, tests = Record(coverage), self.task.tests
        status = pytest.main([*options, *tests], plugins=[record])
        if status == USAGE_ERROR and CONFTEST not in self.log.read_text(encoding="utf-8", errors="replace"):
            # A parameter of a test may be named after what the mutant has changed: all parameters, then.
            tests = [*dict.fromkeys(test.partition("[")[0] for test in tests)]
            status = pytest.main([*options, *tests], plugins=[record])
        told: Answer = {"status": int(status), "failed": record.failed, "seconds": record.seconds}
        if coverage:
            coverage.stop()
            told["lines"] = record.lines(self.tree)
        write_json(self.told, told)


def run(copies: Sequence[Copy], tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer]]:
    """Each task with its answer, as they end; as many at once as there are copies."""
    waiting = list(tasks)[::-1]
    busy: set[Copy] = set()
    try:
        while waiting or busy:
            for copy in copies:
                if copy in busy and (answer := copy.answer()):
                    busy.remove(copy)
                    yield copy.task, answer
                if copy not in busy and waiting:
                    copy.start(waiting.pop())
                    busy.add(copy)
            time.sleep(0.02)
    finally:
        for copy in busy:
            copy.end()


def callers(folder: Path, module: str) -> set[str]:
    """A module of a folder, and those that import it, directly or not."""
    imports = {path.stem: imported(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")}
    found = {module}
    while more := {name for name, used in imports.items() if used & found} - found:
        found |= more
    return found


def imported(text: str) -> set[str]:
    """Last names of the modules that a text imports, and the names it takes from them."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module]
    return {str(node.module).rpartition(".")[2] for node in nodes} | {one.name for node in nodes for one in node.names}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def write_json(path: Path, content: object) -> None:
    """All or nothing; without `ocr`, which only the forks import."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


# -- which tests reach which lines


class Reached:
    """Tests with their CPU seconds, and the tests of every line."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.imports: dict[str, set[str]] = {}

    def add(self, file: str, kept: Answer) -> None:
        """The tests of one file; those that fail without any mutant tell nothing."""
        seconds = {test: spent for test, spent in kept["seconds"].items() if test not in kept["failed"]}
        self.seconds |= seconds
        self.imports[file] = imported((self.tree / file).read_text(encoding="utf-8"))
        for module, lines in kept["lines"].items():
            for line, tests in lines.items():
                self.lines[module][int(line)] |= {*tests} & seconds.keys()

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Tests of the statement, else of its function, else of the module; the telling and quick ones first.

        What is outside of functions, and a function's own head, runs once, in whatever test imports it first: all tests
        of the module count, or of the function.
        """
        lines, name, room = self.lines[mutant.module], Path(mutant.module).stem, mutant.module.split("/")[1]
        statement, function = mutant.statement, mutant.function
        is_head = statement[0] == function[0] != function[1]
        found: set[str] = set()
        for first, last in ((statement[1] + 1, function[1]) if is_head else statement, function):
            if function != (0, 0) and not found:
                found = set().union(*(lines[line] for line in range(first, last + 1) if line in lines))
        if not found or mutant.module.startswith(KERNELS):
            # Compiled lines are not traced: tests that import the kernel, or run a module that does.
            names = callers(self.tree / KERNELS, name) if mutant.module.startswith(KERNELS) else {name}
            users = {file for file, used in self.imports.items() if used & names}
            found = set().union(found, *lines.values(), *(self._of_file(file) for file in users))
            for module in [*self.lines] if mutant.module.startswith(KERNELS) else ():
                if imported((self.tree / module).read_text(encoding="utf-8")) & names:
                    found |= set().union(*self.lines[module].values())
        # Threads of the worker pool are not traced: the module's own tests count in any case.
        found |= {test for file in self.imports if Path(file).name == f"test_{name}.py" for test in self._of_file(file)}

        def order(test: str) -> tuple[int, float, str]:
            file = Path(test.partition("::")[0])
            distance = 0 if name in file.stem else 1 if file.parts[1] == room else 2
            return distance, self.seconds[test], test

        return sorted(found, key=order)

    def _of_file(self, file: str) -> set[str]:
        return {test for test in self.seconds if test.partition("::")[0] == file}


def record_lines(copies: Sequence[Copy], folder: Path, slow: bool) -> Reached:
    """Run each test file with coverage, unless it and the modules that it reaches are those of the last time."""
    tree = copies[0].tree
    files = [
        str(path.relative_to(tree)) for room in TESTED for path in sorted((tree / "tests" / room).rglob("test_*.py"))
    ]
    kept = {file: folder / f"{file.replace('/', '.')}{'.slow' if slow else ''}.json" for file in files}

    def is_fresh(file: str) -> bool:
        known = json.loads(kept[file].read_text(encoding="utf-8"))["digests"] if kept[file].exists() else {"": ""}
        return all((tree / name).is_file() and digest(tree / name) == seen for name, seen in known.items())

    folder.mkdir(parents=True, exist_ok=True)
    stale = sorted((file for file in files if not is_fresh(file)), key=lambda file: -(tree / file).stat().st_size)
    options = () if slow else ("-m", "not slow")
    for number, (task, answer) in enumerate(
        run(copies, (Task([file], FILE_SECONDS, options=options) for file in stale))
    ):
        print(f"{number + 1}/{len(stale)} {task.tests[0]}: {len(answer.get('seconds', ()))} tests", flush=True)
        if "lines" not in answer:
            print(f"  cannot be recorded: {answer['status']}", flush=True)
            continue
        digests = {name: digest(tree / name) for name in (task.tests[0], *answer["lines"])}
        write_json(kept[task.tests[0]], answer | {"digests": digests})
    reached = Reached(tree)
    for file in files:
        if kept[file].exists():
            reached.add(file, json.loads(kept[file].read_text(encoding="utf-8")))
    return reached


# -- trying mutants


class Trial:
    """Mutants and what became of them: kept in a file, by their change and the module that it was made in."""

    def __init__(self, copies: Sequence[Copy], reached: Reached, file: Path, again: bool = False) -> None:
        self.copies, self.reached, self.file = copies, reached, file
        known: dict[str, Answer] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        excused = {change for change, reason in reasons().items() if not reason.get("noticeable")}
        self.results = {
            name: one for name, one in known.items() if not again or one["noticed"] or change(one) in excused
        }

    def try_all(self, mutants: Sequence[Mutant], test_seconds: float = TEST_SECONDS) -> list[Answer]:
        """The results, in the order of the mutants."""
        # Named now: while others run, a mutant of the same module can stand in the tree.
        names = {mutant: self._name(mutant) for mutant in mutants}
        tasks = []
        for mutant, name in names.items():
            if name not in self.results:
                task = self._task(mutant, test_seconds)
                if task.tests:
                    tasks.append(task)
                else:
                    self._keep(name, mutant, noticed=False, by="no test reaches it")
        for number, (task, told) in enumerate(run(self.copies, tasks)):
            assert task.mutant
            noticed, by = True, str(told["status"])
            if told["failed"]:
                by = ": ".join(next(iter(told["failed"].items())))
            elif told["status"] == USAGE_ERROR:
                by = CONFTEST
            elif told["status"] == 0:
                noticed, by = False, f"{len(task.tests)} tests pass"
            self._keep(names[task.mutant], task.mutant, noticed=noticed, by=by)
            print(f"{number + 1}/{len(tasks)} {'noticed ' if noticed else 'SURVIVED'} {place(task.mutant)}", flush=True)
        return [self.results[name] for name in names.values()]

    def _task(self, mutant: Mutant, test_seconds: float) -> Task:
        tests, seconds = [], 0.0
        for test in self.reached.tests_of(mutant):
            if not tests or seconds + self.reached.seconds[test] <= test_seconds:
                tests.append(test)
                seconds += self.reached.seconds[test]
        limit = START_SECONDS + SLOWER * seconds + COMPILE_SECONDS * mutant.module.startswith(KERNELS)
        return Task(tests, limit, mutant, ["-x", "--hypothesis-seed=0"])

    def _name(self, mutant: Mutant) -> str:
        source = digest(self.reached.tree / mutant.module)
        return f"{mutant.module}:{mutant.start}-{mutant.end} {mutant.replacement} {source}"

    def _keep(self, name: str, mutant: Mutant, noticed: bool, by: str) -> None:
        known = {"module": mutant.module, "line": mutant.line, "before": mutant.before, "after": mutant.after}
        self.results[name] = known | {"noticed": noticed, "by": by}
        write_json(self.file, self.results)


def place(mutant: Mutant) -> str:
    """How a mutant is shown, and chosen with --only."""
    return f"{mutant.module}:{mutant.line} {mutant.before} -> {mutant.after}"


def controls(tree: Path, mutants: Iterable[Mutant]) -> list[Mutant]:
    """A comment in one module of each room: a test that notices it would notice anything."""
    found: dict[str, Mutant] = {}
    for mutant in mutants:
        end = len((tree / mutant.module).read_bytes())
        comment = replace(mutant, start=end, end=end, replacement="# Nothing.\n", before="", after="# Nothing.")
        found.setdefault(mutant.module.split("/")[1], comment)
    return list(found.values())


def choose(options: argparse.Namespace, tree: Path) -> list[Mutant]:
    """The sample, or the mutants of an earlier result whose lines still stand."""
    if not options.like:
        mutants = draw_sample(tree, options.count, options.seed)
    else:
        listed = json.loads(options.like.read_text(encoding="utf-8"))
        wanted = {change(one): one for one in (listed.values() if isinstance(listed, dict) else listed)}
        modules = [module for module in dict.fromkeys(key[0] for key in wanted) if (tree / module).exists()]
        all_of = [one for module in modules for one in mutants_of(module, (tree / module).read_bytes())]
        found = {(one.module, one.before, one.after): one for one in all_of}
        mutants = [found[key] for key in wanted if key in found]
        print(f"{len(mutants)} of {len(wanted)} mutants still exist")
    return [mutant for mutant in mutants if re.search(options.only, place(mutant))]


# -- what became of them


def reasons() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Of survivors, by module and lines: line numbers move. One that is `noticeable` counts: no test looks at it."""
    return {change(one): one for one in json.loads(REASONS.read_text(encoding="utf-8"))}


def change(result: Answer) -> tuple[str, str, str]:
    return result["module"], result["before"], result["after"]


def rooms_table(results: Sequence[Answer]) -> list[list[str]]:
    """Headings, one row per room, and one for all."""
    rows = [["room", "mutants", "noticed", "survived", "of these, cannot be noticed", "noticed of the others"]]
    for room in (*sorted({one["module"].split("/")[1] for one in results}), "all"):
        group = [one for one in results if room in ("all", one["module"].split("/")[1])]
        survived = [reasons().get(change(one), {"noticeable": True}) for one in group if not one["noticed"]]
        excused = sum(not reason.get("noticeable") for reason in survived)
        noticed = len(group) - len(survived)
        share = noticed / max(len(group) - excused, 1)
        rows.append([room, *map(str, (len(group), noticed, len(survived), excused)), f"{share:.0%}"])
    return rows


def survivors_table(results: Sequence[Answer]) -> list[list[str]]:
    """Headings, then place, change and reason of all that no test noticed."""
    rows = [["place", "before", "after", "why"]]
    for one in sorted(results, key=lambda one: (one["module"], one["line"])):
        if not one["noticed"]:
            why = reasons().get(change(one), {"reason": one["by"]})["reason"]
            rows.append([f"{one['module']}:{one['line']}", f"`{one['before']}`", f"`{one['after']}`", why])
    return rows


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=300, help="mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="at once (default: cores)")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="of the sample, those whose place and change match"
    )
    parser.add_argument("--like", type=Path, metavar="FILE", help="the mutants of this result instead of a sample")
    parser.add_argument("--again", action="store_true", help="try survivors again that could be noticed")
    parser.add_argument("--slow", action="store_true", help="with the tests that are marked slow")
    parser.add_argument(
        "--test-seconds", type=float, default=TEST_SECONDS, help=f"of a mutant (default: {TEST_SECONDS})"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "data" / "mutants", help="work (default: data/mutants)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results of these mutants")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the tables into docs/reliability.md")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # The forks end too.
    folder = options.folder.resolve()
    copies = [Copy(folder, ROOT)]
    copies += [Copy(folder / f"worker-{number}", copies[0].tree) for number in range(1, options.workers)]
    mutants = choose(options, copies[0].tree)
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    assert "ocr" not in sys.modules
    reached = record_lines(copies, folder / "reached", options.slow)
    trial = Trial(copies, reached, folder / "results.json", options.again)
    unharmed = trial.try_all(controls(copies[0].tree, mutants), min(CONTROL_SECONDS, options.test_seconds))
    results = trial.try_all(mutants, options.test_seconds)
    for row in (*survivors_table(results), *rooms_table(results)):
        print(" | ".join(row))
    if options.json:
        write_json(options.json, results)
    if options.docs:
        from benchmarks.documents import replace_part, table_lines

        command = f"python -m benchmarks.reliability.mutants --count {options.count} --seed {options.seed}"
        rooms, survivors = rooms_table(results), survivors_table(results)
        lines = [f"{date.today().isoformat()}: `{command}`.", "", *table_lines(rooms[0], rooms[1:])]
        lines += ["", "Survivors:", "", *table_lines(survivors[0], survivors[1:])]
        replace_part(options.docs, "mutants", lines)
    wrong = [one for one in unharmed if one["noticed"]]
    for one in wrong:
        print(f"the figures are worth nothing: {one['by']} also notices a comment in {one['module']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command resumes")
