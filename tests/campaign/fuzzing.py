"""One block of a parser's inputs: changed copies of examples, guided by the lines of the parser that they reach."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from tests.campaign.cases import Parser, random_for
from tests.campaign.mutate import CHANGERS

BLOCK = 5000
"""Inputs that share a corpus: one of them is made again from the seed by making those before it."""
TRACED = 16
"""One input of so many is traced: tracing a parser takes ten times as long."""
MAX_CORPUS = 400
MAX_KEPT_BYTES = 1 << 15


class Lines:
    """The lines of some modules that were reached so far."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules, self._before = tuple(modules), 0
        self._tracer_before: Any = None
        self._wanted: dict[CodeType, bool] = {}
        self.seen: set[tuple[CodeType, int]] = set()

    def __enter__(self) -> None:
        self._before, self._tracer_before = len(self.seen), sys.gettrace()
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer_before)

    @property
    def found_new(self) -> bool:
        return len(self.seen) > self._before

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            name = code.co_filename.replace("\\", "/")
            wanted = self._wanted[code] = any(part in name for part in self._modules)
        return self._line if wanted else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.seen.add((frame.f_code, frame.f_lineno))
        return self._line


class Block:
    """The inputs from `first` on, in order; each is to be tried before the next one is asked for."""

    def __init__(self, parser: Parser, seed: int, first: int) -> None:
        assert first % BLOCK == 0
        self.lines, self._change, self._tokens = Lines(parser.traced), CHANGERS[parser.kind], parser.tokens
        self._rng, self._corpus = random_for(seed, parser.name, first), list(parser.examples())
        self.number = first

    def inputs(self) -> Iterator[tuple[int, bytes, bool]]:
        """Number, bytes, and whether it is to be traced with `lines`."""
        while True:
            data = self._choose(self._rng)
            traced = self.number % TRACED == 0
            yield self.number, data, traced
            if traced and self.lines.found_new and len(data) <= MAX_KEPT_BYTES and len(self._corpus) < MAX_CORPUS:
                self._corpus.append(data)
            self.number += 1

    def _choose(self, rng: Random) -> bytes:
        data = self._change(rng.choice(self._corpus), rng, self._tokens)
        if rng.random() < 0.03:  # The start of one and the end of another.
            other = rng.choice(self._corpus)
            data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
        return data


def input_at(parser: Parser, seed: int, number: int, folder: Path) -> bytes:
    """The bytes of one input; the traced ones before it in its block are tried again, because they guided it."""
    block = Block(parser, seed, number - number % BLOCK)
    for at, data, traced in block.inputs():
        if at == number:
            return data
        if traced:
            with block.lines, suppress(Exception):  # Was told when it was found.
                parser.parse(data, folder)
    raise AssertionError
