"""Which tests execute which lines: measured once, test file by test file, and kept beside the run."""

from __future__ import annotations

import ast
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coverage import CoverageData

from benchmarks.mutation.scratch import KERNELS, IdleRunners, TestRunner, importers

ALSO = ("datasets",)
"""Folders of tests/ beside those of the rooms: the datasets are the way to most of them."""
MAX_SECONDS_PER_FOLDER = 3600


@dataclass
class ReachedLines:
    """Tests with their seconds, and the tests of every line."""

    root: Path
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Tests whose file imports a module by name."""

    def add(self, kept: dict[str, Any]) -> None:
        """The tests of one file; those that fail without any mutant tell nothing."""
        tests = list(kept["seconds"])
        failed = set(kept["failed"])
        self.seconds |= {test: seconds for test, seconds in kept["seconds"].items() if test not in failed}
        for module, lines in kept["lines"].items():
            for line, found in lines.items():
                self.lines[module][int(line)] |= {tests[index] for index in found} - failed
        for module in kept["imports"]:
            self.imports[module] |= set(tests) - failed

    def tests_of(self, module: str, statement: tuple[int, int], function: tuple[int, int] = (0, 0)) -> list[str]:
        """Tests of the statement, else of its function, else of the module; the telling and quick ones first.

        What is outside of functions, and a function's own head, runs once, in whatever test imports it first: all tests
        of the module count, or of the function.
        """
        reached = self.lines[module]
        found: set[str] = set()
        is_head = statement[0] == function[0] != function[1]
        body = (statement[1] + 1, function[1])
        for first, last in () if function == (0, 0) else (body, function) if is_head else (statement, function):
            found = found or set().union(*(reached[line] for line in range(first, last + 1) if line in reached))
        # A test may run a kernel uncompiled, which is traced; all others are not.
        if not found or module.startswith(f"{KERNELS}/"):
            found = set().union(found, *reached.values(), self._callers(module))
        # Threads of the worker pool are not traced: the module's own tests count in any case.
        own = f"test_{Path(module).stem}.py"
        found |= {test for test in self.seconds if Path(test.partition("::")[0]).name == own}
        return sorted(found, key=lambda test: (_distance(test, module), self.seconds[test], test))

    def _callers(self, module: str) -> set[str]:
        """Compiled lines are not traced: tests that import the module, or run one that does."""
        found = set(self.imports[module])
        if module.startswith(f"{KERNELS}/"):
            kernels = {Path(module).stem} | importers(self.root / KERNELS, Path(module).stem) - {"warm_up"}
            for name in kernels:
                found |= self.imports[f"{KERNELS}/{name}.py"]
            for other, lines in self.lines.items():
                text = (self.root / other).read_text(encoding="utf-8")
                if any(f"kernels.{name} import" in text for name in kernels):
                    found |= set().union(*lines.values())
        return found


def _distance(test: str, module: str) -> int:
    """0 for tests of the file of that name, 1 for those of its room, 2 for others."""
    name, room = Path(module).stem, module.split("/")[1]
    file = Path(test.partition("::")[0])
    if name in file.stem:
        return 0
    return 1 if file.parts[1] == room else 2


def measure_lines(
    runners: Sequence[TestRunner], folder: Path, rooms: tuple[str, ...], test_folders: tuple[str, ...]
) -> ReachedLines:
    """Run the tests that have changed since the last time with coverage, a folder per runner, and put all together."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = runners[0].scratch.tree
    found = ReachedLines(tree)
    kept: list[Path] = []
    changed: list[dict[str, Path]] = []
    for room in test_folders:
        names = {str(file.relative_to(tree)): file for file in sorted((tree / "tests" / room).rglob("test_*.py"))}
        kept += [folder / _kept_name(name) for name in names]
        changed.append({name: file for name, file in names.items() if not _is_fresh(folder / _kept_name(name), file)})
    # The largest folders first: the last to end has no other beside it.
    changed.sort(key=lambda files: -sum(file.stat().st_size for file in files.values()))
    with IdleRunners(runners) as idle:
        for one in [idle.submit(_measure_and_keep, files, folder, rooms) for files in changed if files]:
            one.result()
    for path in kept:
        found.add(json.loads(path.read_text(encoding="utf-8")))
    return found


def _measure_and_keep(runner: TestRunner, files: Mapping[str, Path], folder: Path, rooms: tuple[str, ...]) -> None:
    measured = _measure(runner, list(files), rooms)
    for name, file in files.items():
        told = measured[name] | {"digest": _digest(file), "imports": imported_modules(file)}
        (folder / _kept_name(name)).write_text(json.dumps(told), encoding="utf-8")


def _kept_name(test_file: str) -> str:
    return f"{test_file.replace('/', '.')}.json"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _is_fresh(kept: Path, test_file: Path) -> bool:
    return kept.exists() and json.loads(kept.read_text(encoding="utf-8"))["digest"] == _digest(test_file)


def imported_modules(path: Path) -> list[str]:
    """Files of the modules of `ocr` that a test file names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ocr"):
            dotted = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {f"{name.replace('.', '/')}.py" for name in dotted}
    return sorted(found)


def _measure(runner: TestRunner, files: list[str], rooms: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Seconds, failures and reached lines of each test file."""
    scratch = runner.scratch
    for old in scratch.tree.glob(".coverage*"):
        old.unlink()
    options = ["--cov=ocr", "--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
    told = runner.run([*options, *files], MAX_SECONDS_PER_FOLDER)
    data = CoverageData(str(scratch.tree / ".coverage"))
    data.read()
    measured: dict[str, dict[str, Any]] = {}
    for file in files:
        seconds = {test: spent for test, spent in told["seconds"].items() if test.partition("::")[0] == file}
        failed = [test for test in told["failed"] if test.partition("::")[0] == file]
        measured[file] = {"seconds": seconds, "failed": failed, "lines": defaultdict(dict)}
    places = {test: index for each in measured.values() for index, test in enumerate(each["seconds"])}
    wanted = tuple(f"{scratch.tree}/ocr/{room}/" for room in rooms)
    for path in filter(lambda file: file.startswith(wanted), data.measured_files()):
        module = str(Path(path).relative_to(scratch.tree))
        for line, contexts in data.contexts_by_lineno(path).items():
            for test in {context.rpartition("|")[0] for context in contexts} & places.keys():
                lines = measured[test.partition("::")[0]]["lines"][module]
                lines.setdefault(line, []).append(places[test])
    return measured
