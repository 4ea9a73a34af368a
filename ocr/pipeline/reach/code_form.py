"""What a loaded code object does, without what only people read: docstrings, line numbers, the wording of messages.

The instructions are read from memory, not from the source file, which may have been edited since it was imported.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator
from itertools import takewhile
from types import CodeType
from typing import Any, NamedTuple

from ocr.pipeline.reach.wording import Instruction, wording

# Of the argument of these, the lowest bits are flags and the others the number of the name.
_FLAGS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0, "LOAD_SUPER_ATTR": 2}
_FLAG_BITS = {dis.opmap[name]: bits for name, bits in _FLAGS.items() if name in dis.opmap}
_CACHE, _NOP = dis.opmap.get("CACHE", 0), dis.opmap["NOP"]
_NAMED, _CONSTANT = frozenset(dis.hasname), frozenset(dis.hasconst)
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_HAS_DOCSTRING = 0x4000000
_ABOUT_A_CLASS = ("__doc__", "__firstlineno__", "__static_attributes__")


class Import(NamedTuple):
    """An import statement inside a function."""

    module: str
    level: int
    names: tuple[str, ...]


class CodeForm(NamedTuple):
    """A digest of what code does, and what else it needs, in the order of its instructions."""

    digest: bytes
    names: tuple[tuple[str, ...], ...]
    """Global names that it reads, each followed by the attributes that it reads of them: `("np", "linalg", "inv")`."""
    imports: tuple[Import, ...]


_forms: dict[int, tuple[CodeType, CodeForm]] = {}


def code_form(code: CodeType) -> CodeForm:
    """The form of a code object and of those nested in it; computed once per object."""
    known = _forms.get(id(code))
    if known is None:
        # The code is kept, so that its id is not used again.
        known = _forms[id(code)] = code, _Reader(code).form()
    return known[1]


class _Reader:
    """Reads one code object."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        everything = _instructions(code)
        dropped = wording(everything, code.co_positions())
        for number, one in enumerate(everything):
            if one.name in _ABOUT_A_CLASS and one.kind == "STORE_NAME":
                dropped |= {number - 1, number}
        self.kept: list[Instruction] = []
        # Where a jump to an instruction leads among those that are kept.
        self.place: dict[int, int] = {}
        for number, instruction in enumerate(everything):
            self.place[instruction.start] = len(self.kept)
            if number not in dropped:
                self.kept.append(instruction)
        self.names: list[tuple[str, ...]] = []
        self.imports: list[Import] = []

    def form(self) -> CodeForm:
        """The digest, and the names found on the way."""
        code = self.code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_HAS_DOCSTRING)
        parts = [repr((shape, code.co_varnames[:count], code.co_freevars, code.co_cellvars))]
        for number, instruction in enumerate(self.kept):
            parts.append(f"{instruction.opcode} {self._argument(number, instruction)}")
        parts.extend(f"{first} {last} {handler} {depth}" for first, last, handler, depth in self._handlers())
        digest = hashlib.blake2b("\n".join(parts).encode(errors="surrogatepass"), digest_size=16).digest()
        return CodeForm(digest, tuple(self.names), tuple(self.imports))

    def _argument(self, number: int, instruction: Instruction) -> str:
        if instruction.name is not None:
            self._note(number, instruction.kind, instruction.name)
            flags = instruction.argument & ((1 << _FLAG_BITS.get(instruction.opcode, 0)) - 1)
            return f"{instruction.name} {flags}"
        if instruction.opcode in _CONSTANT:
            return self._constant(instruction.constant)
        if instruction.opcode in _JUMPS:
            backward = "BACKWARD" in instruction.kind
            target = instruction.end + 2 * (-instruction.argument if backward else instruction.argument)
            return str(self.place.get(target, len(self.kept)))
        return str(instruction.argument)

    def _note(self, number: int, kind: str, name: str) -> None:
        """Remember a global name with its attributes, or an import."""
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            attributes = takewhile(lambda one: one.kind in ("LOAD_ATTR", "LOAD_METHOD"), self.kept[number + 1 :])
            self.names.append((name, *(one.name or "" for one in attributes)))
        elif kind == "IMPORT_NAME":
            level, names = self.kept[number - 2], self.kept[number - 1].constant
            depth = level.constant if level.opcode in _CONSTANT else level.argument
            self.imports.append(Import(name, int(depth or 0), tuple(names or ())))

    def _constant(self, value: Any) -> str:
        if isinstance(value, CodeType):
            nested = code_form(value)
            self.names.extend(nested.names)
            self.imports.extend(nested.imports)
            return nested.digest.hex()
        if isinstance(value, tuple):
            return f"({' '.join(map(self._constant, value))})"
        if isinstance(value, frozenset):
            return f"{{{' '.join(sorted(map(self._constant, value)))}}}"
        return f"{type(value).__name__} {value!r}"

    def _handlers(self) -> Iterator[tuple[int, int, int, int]]:
        """Which instructions each `except`, `finally` and `with` guards."""
        numbers = _numbers(self.code.co_exceptiontable)
        for start, length, handler, depth in zip(numbers, numbers, numbers, numbers, strict=True):
            end = self.place.get(2 * (start + length), len(self.kept))
            first = self.place.get(2 * start, len(self.kept))
            if first < end:
                yield first, end, self.place.get(2 * handler, len(self.kept)), depth


def _instructions(code: CodeType) -> list[Instruction]:
    """The instructions as they were compiled: `co_code` has neither specialised nor instrumented ones."""
    data, names, constants = code.co_code, code.co_names, code.co_consts
    found: list[Instruction] = []
    extended, start, offset = 0, 0, 0
    while offset < len(data):
        opcode, argument = data[offset], data[offset + 1] | extended
        end = offset + 2
        if opcode == dis.EXTENDED_ARG:
            extended, offset = argument << 8, end
            continue
        while end < len(data) and data[end] == _CACHE:
            end += 2
        if opcode != _NOP:
            name = names[argument >> _FLAG_BITS.get(opcode, 0)] if opcode in _NAMED else None
            constant = constants[argument] if opcode in _CONSTANT else None
            found.append(Instruction(start, offset, end, opcode, argument, name, constant))
        extended, start, offset = 0, end, end
    return found


def _numbers(table: bytes) -> Iterator[int]:
    """The integers of an exception table: six bits per byte, the bit 64 says that more follow."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0
