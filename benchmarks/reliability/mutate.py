"""Every small change of a module that a test should notice, and a seeded sample of them."""

from __future__ import annotations

import ast
import math
import random
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = ("pipeline", "cache", "loader", "shards", "geometry", "evaluation", "advisor")

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
NOT_MUTATED = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)
"""The parts of an f-string have no place of their own in Python 3.11; the rest has nothing to change."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module. Lines and columns are of the module as it is; columns count bytes."""

    module: str
    line: int
    start: int
    end: int
    replacement: str
    before: str
    """The lines as they are, and after the change."""
    after: str
    statement: tuple[int, int]
    function: tuple[int, int]
    """First and last line of what the change is in; zeros outside of functions."""

    def apply(self, source: bytes) -> bytes:
        """The module with the change."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


class Mutator:
    """Walks over a module and collects mutants."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module, self.source = module, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.statement = self.function = (0, 0)
        self.found: list[Mutant] = []

    def collect(self) -> list[Mutant]:
        """All mutants, in the order of the file."""
        self._visit(ast.parse(self.source))
        found = {(mutant.start, mutant.end, mutant.replacement): mutant for mutant in self.found}
        return [mutant for _, mutant in sorted(found.items())]

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, NOT_MUTATED) or _is_for_types_only(node):
            return
        before = self.statement, self.function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self.function = (node.lineno, node.end_lineno or node.lineno)
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            self.statement = (node.lineno, max(end, node.lineno))
        self.found += self._mutants(node)
        for child in _children(node):
            self._visit(child)
        self.statement, self.function = before

    def _mutants(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            yield from self._comparisons(node)
        elif isinstance(node, ast.BinOp):
            yield from self._between(node.left, node.right, *ARITHMETIC.get(type(node.op), ("", "")))
        elif isinstance(node, ast.AugAssign):
            sign, other = ARITHMETIC.get(type(node.op), ("", ""))
            yield from self._between(node.target, node.value, f"{sign}=", f"{other}=")
            yield from self._dropped(node)
        elif isinstance(node, ast.BoolOp):
            sign, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from self._between(left, right, sign, other)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield self._mutant(*self._span(node), self._text(node.operand))
        elif isinstance(node, ast.Constant):
            yield from self._constants(node)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            if not isinstance(node.test, ast.Compare | ast.Constant):
                yield self._mutant(*self._span(node.test), f"(not ({self._text(node.test)}))")
        elif isinstance(node, ast.Call):
            yield from self._swapped_arguments(node)
        elif isinstance(node, ast.stmt):
            yield from self._dropped(node)

    def _comparisons(self, node: ast.Compare) -> Iterator[Mutant]:
        sides = [node.left, *node.comparators]
        for left, right, sign in zip(sides, sides[1:], node.ops, strict=False):
            pattern, other = COMPARISONS[type(sign)]
            yield from self._between(left, right, pattern, other, is_pattern=" " in other or "\\" in pattern)

    def _between(
        self, left: ast.expr, right: ast.expr, sign: str, other: str, is_pattern: bool = False
    ) -> Iterator[Mutant]:
        """The operator between two operands, which may have brackets and line ends around it."""
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[start:end].decode()
        pattern = rf"\b{sign}\b" if is_pattern or sign.isalpha() else re.escape(sign)
        if sign and (found := re.search(pattern, gap)):
            at, to = (start + len(gap[:place].encode()) for place in found.span())
            yield self._mutant(at, to, other)

    def _constants(self, node: ast.Constant) -> Iterator[Mutant]:
        if isinstance(node.value, bool):
            yield self._mutant(*self._span(node), str(not node.value))
        elif isinstance(node.value, int | float):
            for after in (node.value + 1, node.value - 1):
                yield self._mutant(*self._span(node), repr(after) if after >= 0 else f"({after!r})")

    def _swapped_arguments(self, node: ast.Call) -> Iterator[Mutant]:
        """The first two arguments, if they are given by position."""
        first, second = node.args[:2] if len(node.args) > 1 else (None, None)
        if first is None or second is None or isinstance(first, ast.Starred) or isinstance(second, ast.Starred):
            return
        if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "min", "max", "cast", "zip"):
            return
        (start, _), (_, end) = self._span(first), self._span(second)
        between = self.source[self._span(first)[1] : self._span(second)[0]].decode()
        yield self._mutant(start, end, f"{self._text(second)}{between}{self._text(first)}")

    def _dropped(self, node: ast.stmt) -> Iterator[Mutant]:
        """A statement that is left out, or a return without its value."""
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
        if is_call or isinstance(node, ast.AugAssign | ast.Raise | ast.Delete):
            yield self._mutant(*self._span(node), "pass")
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield self._mutant(*self._span(node), "return None")
        elif isinstance(node, ast.Break | ast.Continue):
            yield self._mutant(*self._span(node), "continue" if isinstance(node, ast.Break) else "break")

    def _mutant(self, start: int, end: int, replacement: str) -> Mutant:
        """With enough of the line around the change to know it by."""
        line, last_line = bisect_right(self.starts, start), bisect_left(self.starts, end)
        first, last = self.starts[line - 1], self.starts[last_line]
        head, tail = self.source[first:start].decode(), self.source[end:last].decode()
        lines = self.source[first:last].decode().strip(), f"{head}{replacement}{tail}".strip()
        return Mutant(self.module, line, start, end, replacement, *lines, self.statement, self.function)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()


def is_another_program(mutant: Mutant, source: bytes) -> bool:
    """Whether the change leaves Python, and not the same Python."""
    try:
        changed = ast.parse(mutant.apply(source))
        compile(changed, mutant.module, "exec")
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """All but annotations and decorators: `frozen` and `slots` of a dataclass keep mistakes out, and do no more."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _is_for_types_only(node: ast.AST) -> bool:
    """`if TYPE_CHECKING`, a type variable, or the name of a type."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id in ("TypeVar", "ParamSpec")
    is_type = re.compile(r"[A-Z]\w*[a-z]\w*").fullmatch
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and bool(is_type(node.targets[0].id))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def mutants_of(module: str, source: bytes) -> list[Mutant]:
    """Every mutant of a module.

    >>> [(mutant.before, mutant.after) for mutant in mutants_of("a.py", b"b = a < 1")]
    [('b = a < 1', 'b = a <= 1'), ('b = a < 1', 'b = a < 0'), ('b = a < 1', 'b = a < 2')]
    """
    return Mutator(module, source).collect()


def draw_sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """At most one mutant per line, spread over the rooms by their lines of code.

    The first ones of a long sample are a fair short one.
    """
    lines = {room: _lines_of(root, room) for room in ROOMS}
    total = sum(map(len, lines.values()))
    picked = []
    for room, places in lines.items():
        generator = random.Random(f"{seed} {room}")
        generator.shuffle(places)
        share = count * len(places) / total
        found = (_pick(root, place, generator) for place in places)
        chosen = [mutant for mutant, _ in zip(filter(None, found), range(math.ceil(share)), strict=False)]
        picked += [((number + 0.5) / share, mutant) for number, mutant in enumerate(chosen)]
    return [mutant for _, mutant in sorted(picked, key=lambda each: each[0])][:count]


def _lines_of(root: Path, room: str) -> list[list[Mutant]]:
    """The mutants of each line of a room that has any."""
    lines: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for path in sorted((root / "ocr" / room).rglob("*.py")):
        for mutant in mutants_of(str(path.relative_to(root)), path.read_bytes()):
            lines[mutant.module, mutant.line].append(mutant)
    return [lines[place] for place in sorted(lines)]


def _pick(root: Path, mutants: list[Mutant], generator: random.Random) -> Mutant | None:
    mutant = generator.choice(mutants)
    return mutant if is_another_program(mutant, (root / mutant.module).read_bytes()) else None
