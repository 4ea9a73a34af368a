"""A JSON object that is larger than memory: the members of one of its fields come one by one."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

CHUNK_BYTES = 4 << 20
_SPACE = re.compile(r"[ \t\n\r]*")
_CUT_OFF = 32
"""What the end of a piece cuts in two is noticed at most so far before it; an open string at its start."""


class Member(NamedTuple):
    """One member of an object or a list: its name (None in a list), its value, and the value as it is written."""

    name: str | None
    value: Any
    text: str


class JsonStream:
    """Reads `{..., field: {...} or [...], ...}`; ValueError, with the offset in characters, where it is not JSON."""

    def __init__(self, stream: IO[bytes], field: str) -> None:
        self.rest: dict[str, Any] = {}
        """The other fields, complete when all members were read."""
        self._stream, self._field = stream, field
        self._decoder, self._decode = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._before, self._ended = "", 0, 0, False

    def __iter__(self) -> Iterator[Member]:
        seen = False
        for name in self._names("{", "}"):
            if name != self._field:
                self.rest[str(name)] = self._value()[0]
                continue
            if seen:
                raise self._error(f"{name!r} occurs twice")
            seen = True
            closing = {"{": "}", "[": "]"}.get(self._peek())
            if closing is None:
                raise self._error(f"{name!r} is neither an object nor a list")
            for member in self._names(self._peek(), closing):
                yield Member(member, *self._value())
        if not seen:
            raise self._error(f"there is no {self._field!r}")
        if self._peek():
            raise self._error("there is text after the end")

    def _names(self, opening: str, closing: str) -> Iterator[str | None]:
        """The name of each member, None in a list; the caller reads its value before it asks for the next."""
        self._expect(opening)
        if self._peek() == closing:
            self._at += 1
            return
        while True:
            name = None
            if opening == "{":
                if self._peek() != '"':
                    raise self._error("expected a name in double quotes")
                name = self._value()[0]
                self._expect(":")
            yield name
            if self._peek() == closing:
                self._at += 1
                return
            self._expect(",")

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._error(f"expected {character!r}")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is not space; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_more()

    def _value(self) -> tuple[Any, str]:
        """The next value, and as it is written."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.pos > len(self._text) - _CUT_OFF or error.msg.startswith("Unterminated string")
                if self._ended or not is_cut:
                    self._at = error.pos
                    raise self._error(error.msg) from error
            else:
                # The rest of a number can follow: "1e+" is read as 1.
                if end + 4 * (type(value) in (int, float)) <= len(self._text) or self._ended:
                    text, self._at = self._text[self._at : end], end
                    return value, text
            self._read_more()

    def _read_more(self) -> None:
        # As much again as is waiting: a value of any length is then parsed a few times only.
        data = self._stream.read(max(CHUNK_BYTES, len(self._text) - self._at))
        self._ended = not data
        self._before += self._at
        self._text, self._at = self._text[self._at :] + self._decode.decode(data, final=self._ended), 0

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{what} at character {self._before + self._at}")
