"""How many small mistakes the tests notice: a seeded sample of mutants, each tried in a copy of the repository.

python -m benchmarks.reliability.mutants                         # 300 mutants; resumes where it was stopped
python -m benchmarks.reliability.mutants --count 60 --seed 1 --rooms cache,loader
python -m benchmarks.reliability.mutants --again                 # survivors once more, after tests were added

A mutant is one changed line. The tests that reach it are run, the nearest and quickest first, until one fails. A
survivor that no test can notice has its reason in survivors.json.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REASONS = Path(__file__).with_name("survivors.json")
ROOMS = ("pipeline", "cache", "loader", "shards", "datasets", "geometry", "evaluation", "advisor")
COPIED = ("benchmarks", "configs", "docs", "examples", "ocr", "runners", "scripts", "tests", "pyproject.toml")
KERNELS = "ocr/geometry/kernels"
LIBRARIES = ("albumentations", "hypothesis", "lightning.pytorch", "numba", "pytest", "shapely", "timm", "torchmetrics")
"""Imported once, before all forks: `import torch` costs more than most tests. None of them imports `ocr`."""
TEST_SECONDS, START_SECONDS, COMPILE_SECONDS, SLOWER = 60, 30, 90, 4
"""Of the tests of a mutant, as recorded; of CPU time besides; and the factor beyond which the mutant never ends."""
WALL_SECONDS = 300
"""Tests that wait for each other for longer never end; times the load."""

# -- mutants

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.Add, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{ast.LShift: ast.RShift, ast.RShift: ast.LShift},
}
LEFT_ALONE = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)
"""The parts of an f-string have no place of their own in Python 3.11."""
SYMMETRIC = ("isinstance", "min", "max", "cast", "zip")


@dataclass(frozen=True)
class Mutant:
    """One change of one module; bytes from `start` to `end` are replaced."""

    module: str
    line: int
    start: int
    end: int
    replacement: str
    before: str
    after: str
    """The lines as they are, and after the change."""
    function: tuple[int, int]
    """First and last line of the innermost function."""

    @property
    def room(self) -> str:
        return self.module.split("/")[1]

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What is replaced, and by what."""
    match node:
        case ast.Compare(left, signs, others):
            for at, sign in enumerate(signs):
                changed = [*signs[:at], COMPARISONS[type(sign)](), *signs[at + 1 :]]
                yield node, ast.Compare(left, changed, others)
        case ast.BinOp(left, sign, right) if type(sign) in ARITHMETIC:
            yield node, ast.BinOp(left, ARITHMETIC[type(sign)](), right)
        case ast.AugAssign(target, sign, value):
            yield node, ast.Pass()
            if type(sign) in ARITHMETIC:
                yield node, ast.AugAssign(target, ARITHMETIC[type(sign)](), value)
        case ast.BoolOp(sign, values):
            yield node, ast.BoolOp(ast.Or() if isinstance(sign, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield node, operand
        case ast.Constant(bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield from ((node, ast.Constant(value + step)) for step in (1, -1))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.Constant) and ast.unparse(test) != "TYPE_CHECKING":
                yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Call(function, [first, second, *more], keywords):
            is_symmetric = isinstance(function, ast.Name) and function.id in SYMMETRIC
            if not is_symmetric and not any(isinstance(one, ast.Starred) for one in (first, second)):
                yield node, ast.Call(function, [second, first, *more], keywords)
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
            yield node, ast.Pass()
        case ast.Return(value) if value is not None and ast.unparse(value) != "None":
            yield node, ast.Return(ast.Constant(None))
        case ast.Break():
            yield node, ast.Continue()
        case ast.Continue():
            yield node, ast.Break()


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """What can be changed below a node: not types, decorators, nor what only a type checker reads."""
    if isinstance(node, LEFT_ALONE) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        return
    if isinstance(node, ast.Assign) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", ast.unparse(node.targets[0])):
        return  # The name of a type.
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST))


def mutants_of(module: str, source: bytes) -> list[Mutant]:
    """Every change of a module.

    >>> [(mutant.before, mutant.after) for mutant in mutants_of("a.py", b"b = a < 1")]
    [('b = a < 1', 'b = a <= 1'), ('b = a < 1', 'b = a < 2'), ('b = a < 1', 'b = a < 0')]
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []

    def visit(node: ast.AST, function: tuple[int, int]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            function = node.lineno, node.end_lineno or node.lineno
        for old, new in changes(node):
            assert isinstance(old, ast.expr | ast.stmt)
            assert old.end_lineno is not None
            assert old.end_col_offset is not None
            start, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            text = ast.unparse(new)
            text = f"({text})" if isinstance(new, ast.Constant) and text.startswith("-") else text
            first, last = starts[old.lineno - 1], starts[old.end_lineno]
            before, after = source[first:last], source[first:start] + text.encode() + source[end:last]
            lines = before.decode().strip(), after.decode().strip()
            found.append(Mutant(module, old.lineno, start, end, text, *lines, function))
        for one in parts(node):
            visit(one, function)

    visit(ast.parse(source), (0, 0))
    return found


def is_another_program(mutant: Mutant, source: bytes) -> bool:
    """Whether the change leaves Python, and not the same Python."""
    with contextlib.suppress(SyntaxError):
        changed = mutant.apply(source)
        compile(changed, mutant.module, "exec")
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    return False


def draw_sample(root: Path, rooms: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """At most one mutant per line; the first ones of a long sample are a fair short one."""
    generator, picked = random.Random(seed), []
    for room in rooms:
        for path in sorted((root / "ocr" / room).rglob("*.py")):
            lines: dict[int, list[Mutant]] = defaultdict(list)
            for mutant in mutants_of(str(path.relative_to(root)), path.read_bytes()):
                lines[mutant.line].append(mutant)
            picked += [generator.choice(lines[line]) for line in sorted(lines)]
    generator.shuffle(picked)
    valid = (one for one in picked if is_another_program(one, (root / one.module).read_bytes()))
    return [*islice(valid, count)]


# -- which tests reach which lines


class Reached:
    """The tests of every line with their seconds, recorded by one run with coverage per state of the tree."""

    def __init__(self, tree: Path, folder: Path, rooms: Sequence[str]) -> None:
        digest = hashlib.sha256()
        for path in sorted([*(tree / "ocr").rglob("*.py"), *(tree / "tests").rglob("*.py")]):
            digest.update(path.read_bytes())
        self.key = digest.hexdigest()[:12]
        data, log = folder / f"{self.key}.coverage", folder / f"{self.key}.txt"
        if not log.exists():
            tests = [f"tests/{room}" for room in rooms]
            command = [sys.executable, "-m", "pytest", "-m", "not slow", "--durations=0", "-vv", "-rfE", "--color=no"]
            command += ["--cov=ocr", "--cov-context=test", "--cov-report=", "-p", "no:xdist", *tests]
            environment = os.environ | {"PYTHONPATH": str(tree), "COVERAGE_FILE": str(data)}
            done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
            log.write_text(done.stdout)
        from coverage import CoverageData

        told = log.read_text()
        self.seconds: dict[str, float] = defaultdict(float)
        for seconds, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(.+)$", told, re.MULTILINE):
            self.seconds[test] += float(seconds)
        failed = {*re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", told, re.MULTILINE)}
        self.lines: dict[str, dict[int, set[str]]] = {}
        covered = CoverageData(str(data))
        covered.read()
        for file in covered.measured_files():
            lines = self.lines[str(Path(file).relative_to(tree))] = {}
            for line, contexts in covered.contexts_by_lineno(file).items():
                if tests := {context.partition("|")[0] for context in contexts} - failed - {""}:
                    lines[line] = tests

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Of the line, else of its function, else of the module, else of its test file; the quick ones first."""
        lines, stem = self.lines.get(mutant.module, {}), Path(mutant.module).stem
        first, last = mutant.function
        found = lines.get(mutant.line) or set().union(*(lines[line] for line in lines if first < line <= last))
        found = found or set().union(*lines.values())
        # What only runs when tests are collected belongs to no test.
        found = found or {test for test in self.seconds if Path(test.partition("::")[0]).stem == f"test_{stem}"}
        if mutant.module.startswith(KERNELS):  # Compiled lines are not traced.
            found = {test for test in self.seconds if test.startswith(("tests/geometry", "tests/evaluation"))}
        ordered = sorted(found, key=lambda test: (stem not in test.partition("::")[0], self.seconds[test], test))
        chosen, seconds = ordered[:1], 0.0
        for test in ordered[1:]:
            if (seconds := seconds + self.seconds[test]) <= TEST_SECONDS:
                chosen.append(test)
        return chosen


# -- trying them


def try_one(mutant: Mutant, tests: Sequence[str], tree: Path, limit: float) -> str:
    """How the mutant is noticed; empty if all tests pass. They run in a fork of this process."""
    path, log = tree / mutant.module, tree.with_name("pytest.txt")
    source, kernels = path.read_bytes(), tree.with_name("kernels")
    if mutant.module.startswith(KERNELS):
        shutil.copytree(tree / KERNELS, kernels, dirs_exist_ok=True)
    path.write_bytes(mutant.apply(source))
    try:
        if (child := os.fork()) == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit),) * 2)
            signal.alarm(int(WALL_SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))))
            status = 1
            with contextlib.suppress(BaseException):
                status = int(run_tests(tests, tree, log))
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # What the tests have started.
    finally:
        path.write_bytes(source)
        if kernels.exists():
            shutil.rmtree(tree / KERNELS)
            kernels.rename(tree / KERNELS)
    failed = re.search(r"^(?:FAILED|ERROR) (.*)$", log.read_text(errors="replace"), re.MULTILINE)
    return "" if status == 0 else failed[1][:200] if failed else f"the tests ended with {status}"


def run_tests(tests: Sequence[str], tree: Path, log: Path) -> int:
    """In the fork: from here on `ocr` is the copy."""
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]
    import pytest

    options = ["-x", "-rfE", "--tb=line", "--color=no", "-p", "no:cacheprovider", f"--rootdir={tree}"]
    return pytest.main([*options, f"--basetemp={tree.with_name('pages')}", "--hypothesis-seed=0", *tests])


def work(mutants: Sequence[Mutant], reached: Reached, tree: Path, results: Path) -> None:
    """Try these one after the other; each result is a line of a file."""
    for mutant in mutants:
        tests = reached.tests_of(mutant)
        limit = START_SECONDS + SLOWER * sum(map(reached.seconds.__getitem__, tests))
        limit += COMPILE_SECONDS * mutant.module.startswith(KERNELS)
        by = try_one(mutant, tests, tree, limit) if tests else ""
        told = asdict(mutant) | {"key": reached.key, "noticed": bool(by), "by": by or f"{len(tests)} tests pass"}
        with results.open("a") as stream:
            stream.write(json.dumps(told) + "\n")
        place = f"{mutant.module}:{mutant.line} {mutant.before} -> {mutant.after}"
        print("noticed " if by else "SURVIVED", place, flush=True)


def copy_tree(folder: Path) -> Path:
    """The repository in a folder, with the machine code of its kernels."""
    tree = folder / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    tree.mkdir(parents=True)
    for source in (ROOT / name for name in COPIED):
        if source.is_dir():
            shutil.copytree(source, tree / source.name, symlinks=True, ignore=shutil.ignore_patterns("*.pyc"))
        else:
            shutil.copy2(source, tree)
    return tree


# -- what became of them


def tables(results: Sequence[dict[str, Any]]) -> tuple[list[list[str]], list[list[str]]]:
    """A row per room and one for all; then the survivors with their reasons."""
    change = ("module", "before", "after")
    reasons = {tuple(one[key] for key in change): one["reason"] for one in json.loads(REASONS.read_text("utf-8"))}
    rooms = [["room", "mutants", "noticed", "survived", "of these, cannot be noticed", "noticed of the others"]]
    why = {id(one): reasons.get(tuple(one[key] for key in change), "") for one in results if not one["noticed"]}
    for room in (*sorted({one["module"].split("/")[1] for one in results}), "all"):
        group = [one for one in results if room in ("all", one["module"].split("/")[1])]
        survived = [one for one in group if not one["noticed"]]
        excused = sum(bool(why[id(one)]) for one in survived)
        share = (len(group) - len(survived)) / max(len(group) - excused, 1)
        rooms.append(
            [room, *map(str, (len(group), len(group) - len(survived), len(survived), excused)), f"{share:.0%}"]
        )
    survivors = [["place", "before", "after", "why"]]
    for one in sorted((one for one in results if not one["noticed"]), key=lambda one: (one["module"], one["line"])):
        texts = (f"`{' '.join(one[key].split())}`" for key in ("before", "after"))
        survivors.append([f"{one['module']}:{one['line']}", *texts, why[id(one)] or one["by"]])
    return rooms, survivors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="folders of ocr/ (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at once (default: cores)")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--folder", type=Path, default=ROOT / "data/mutants", help="work (default: data/mutants)")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the tables into docs/reliability.md")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A shell lets its background jobs ignore Ctrl-C, and tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder, rooms = options.folder.resolve(), options.rooms.split(",")
    trees = [copy_tree(folder / f"copy-{number}") for number in range(options.workers)]
    mutants = draw_sample(trees[0], rooms, options.count, options.seed)
    reached = Reached(trees[0], folder, rooms)
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    assert "ocr" not in sys.modules
    results, known = folder / "results.jsonl", dict[tuple[Any, ...], dict[str, Any]]()

    def read() -> None:
        for line in results.read_text().splitlines() if results.exists() else ():
            one = json.loads(line)
            known[one["module"], one["start"], one["end"], one["replacement"], one["before"], one["key"]] = one

    def name(mutant: Mutant) -> tuple[Any, ...]:
        return mutant.module, mutant.start, mutant.end, mutant.replacement, mutant.before, reached.key

    read()
    waiting = [one for one in mutants if name(one) not in known or (options.again and not known[name(one)]["noticed"])]
    started = []
    for number, tree in enumerate(trees):
        given = waiting[number :: len(trees)], reached, tree, results
        started.append(get_context("fork").Process(target=work, args=given))
        started[-1].start()
    for process in started:
        process.join()
    read()
    found = tables([known[name(mutant)] for mutant in mutants if name(mutant) in known])
    for table in found:
        print("\n".join(" | ".join(row) for row in table))
    if options.docs:
        from benchmarks.documents import replace_part, table_lines

        command = f"python -m benchmarks.reliability.mutants --count {options.count} --seed {options.seed}"
        command += f" --rooms {options.rooms}" * (options.rooms != ",".join(ROOMS))
        lines = [f"{date.today().isoformat()}: `{command}`.", "", *table_lines(found[0][0], found[0][1:])]
        replace_part(options.docs, "mutants", [*lines, "", "Survivors:", "", *table_lines(found[1][0], found[1][1:])])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command resumes")
