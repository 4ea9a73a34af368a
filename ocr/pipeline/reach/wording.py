"""Which instructions of a code object only word a message: the texts of `raise`, `assert`, logging and warnings."""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

LOGGERS = ("log", "logger", "logging", "warnings")
LOG_METHODS = ("debug", "info", "warning", "error", "exception", "critical", "warn")
_FORMATTING = ("BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC")
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_ASSERTION = ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT")

Span = tuple[tuple[int, int], tuple[int, int]]
"""From (line, column) to (line, column)."""


class Instruction(NamedTuple):
    """One instruction with its argument resolved."""

    start: int
    """Offset of its first byte, which belongs to a prefix if the argument is large."""
    offset: int
    end: int
    """Offset behind it and its inline cache."""
    opcode: int
    argument: int
    name: str | None
    """The name that it reads, stores or imports; None for other operations. `from . import x` imports ""."""
    constant: Any

    @property
    def kind(self) -> str:
        """The name of the operation."""
        return dis.opname[self.opcode]


def wording(instructions: list[Instruction], positions: Iterable[tuple[int | None, ...]]) -> set[int]:
    """Numbers of the instructions that make the text of a message; none if the code does not know its columns."""
    raises = [number for number, one in enumerate(instructions) if one.kind == "RAISE_VARARGS" and one.argument]
    logs = _calls_for_their_effect(instructions) if any(one.name and _may_log(one.name) for one in instructions) else []
    if not raises and not logs:
        return set()
    every = list(positions)
    spans = [_span(*every[one.offset // 2]) for one in instructions]
    dropped: set[int] = set()
    for number in raises:
        dropped.update(_of_raise(number, instructions, spans))
    for number in logs:
        if _is_logging(number, instructions, spans):
            dropped.update(_texts(spans[number], instructions, spans))
    return dropped


def _span(line: int | None, end_line: int | None, column: int | None, end_column: int | None) -> Span | None:
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return (line, column), (end_line, end_column)


def _calls_for_their_effect(instructions: list[Instruction]) -> list[int]:
    """Calls whose result is not used: statements."""
    return [
        number
        for number, (one, follower) in enumerate(pairwise(instructions))
        if one.kind in _CALLS and follower.kind == "POP_TOP"
    ]


def _may_log(name: str) -> bool:
    return name in LOG_METHODS or name.strip("_").startswith("warn")


def _is_logging(number: int, instructions: list[Instruction], spans: list[Span | None]) -> bool:
    """Whether a call is log.warning, self._logger.info, warnings.warn, warn_once or the like."""
    call = spans[number]
    if call is None:
        return False
    # What is called begins where the call does; arguments begin later.
    pairs = zip(instructions[:number], spans, strict=False)
    callee = [one.name for one, span in pairs if one.name and span and span[0] == call[0]]
    if len(callee) == 1:
        return callee[0].strip("_").startswith("warn")
    return len(callee) > 1 and callee[-1] in LOG_METHODS and callee[-2].strip("_").lower() in LOGGERS


def _of_raise(number: int, instructions: list[Instruction], spans: list[Span | None]) -> Iterator[int]:
    """The texts of an exception that is raised; all of the message of an assertion."""
    statement = spans[number]
    for start in range(number - 1, -1, -1):
        if instructions[start].kind in _ASSERTION and not instructions[start].argument:
            return iter(range(start + 1, number))
        if instructions[start].kind == "RAISE_VARARGS":
            break
    calls = [
        span
        for one, span in zip(instructions, spans, strict=True)
        # Behind the word `raise`; what has the place of the whole statement is an assertion.
        if one.kind in _CALLS and span and statement and statement[0] < span[0] and span[1] <= statement[1]
    ]
    # The exception comes before its cause, and around whatever is called for its arguments.
    exception = min(calls, key=lambda span: (span[0], _reversed(span[1])), default=None)
    return _texts(exception, instructions, spans)


def _reversed(place: tuple[int, int]) -> tuple[int, int]:
    return -place[0], -place[1]


def _texts(call: Span | None, instructions: list[Instruction], spans: list[Span | None]) -> Iterator[int]:
    """Numbers of all instructions of those arguments of a call that contain a text, formatted or not."""
    if call is None:
        return
    # What is called begins where the call does, and the arguments follow it.
    callee = max((span[1] for span in spans if span and span[0] == call[0] and span[1] < call[1]), default=call[0])
    inside = [(span, number) for number, span in enumerate(spans) if span and callee <= span[0] and span[1] <= call[1]]
    inside.sort(key=lambda one: (one[0][0], _reversed(one[0][1]), one[1]))
    argument: list[int] = []
    end = (0, 0)
    for span, number in [*inside, (None, -1)]:
        if span is None or span[1] > end:
            if any(_is_text(instructions[member]) for member in argument):
                yield from argument
            argument, end = [], span[1] if span else end
        argument.append(number)


def _is_text(one: Instruction) -> bool:
    return isinstance(one.constant, str) or one.kind in _FORMATTING
