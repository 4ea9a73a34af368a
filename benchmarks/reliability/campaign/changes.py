"""Damaged copies of valid files: bytes, texts and JSON values, a few changes each; and damage as a disk does it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any
from xml.sax.saxutils import quoteattr

MAX_BYTES = 1 << 16
DEPTHS = (3, 40, 1_100, 60_000)
NUMBERS = (0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63, 10**400)
NUMBERS += (0.5, -0.0, 1e-320, 1e6, 1000001.0, 1e38, 3.5e38, 1e300, float("nan"), float("inf"), float("-inf"))
TEXTS = ("", " ", "x", "###", "0", "-1", "1e400", "nan", "a.jpg", "../a.jpg", "/etc/passwd", "\0", "\ud800", "é" * 40)
TEXTS += ("\u2028", "true", "None", "[]", "a" * 5000, "\\", '"', "١٢", "²", "1_000", " 1", "0x10", "%00", "C:\\a.jpg")
JUNK: tuple[Any, ...] = (*NUMBERS, *TEXTS, None, True, False, [], {}, [[]], [None], {"points": 1}, [[1, 2]], [[[0, 0]]])
TOKENS = (b'"', b"'", b",", b";", b"\t", b"\n", b"\r\n", b"\0", b"<", b">", b"&", b"[", b"]", b"{", b"}", b"(", b":")
TOKENS += (b"<!DOCTYPE x>", b"<![CDATA[", b"<!--", b"<?", b"&#0;", b"&amp;", b"####", b"nan", b"-inf", b"1e999", b"-")
TOKENS += (b"9" * 400, b"9" * 5000, b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\xe2\x80\xa8", b"0x1", b"1_0", b" ", b"x")
EXTREMES = (0, 1, 2, 2**31, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1, 0xFFFF, 0x7FFF)
_NESTED = ((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b'{"a":', b"}"), (b"[{", b"}]"), (b"<a>", b"</a>"), (b"-", b""))


Splice = tuple[int, bytes]
"""How many bytes are removed, and what is put in their place."""


def _number(rest: bytes, rng: Random) -> Splice:
    """An extreme integer of 2, 4 or 8 bytes."""
    width, value = rng.choice((2, 4, 8)), rng.choice((*EXTREMES, rng.getrandbits(64)))
    return width, (value & ((1 << 8 * width) - 1)).to_bytes(width, rng.choice(("little", "big")))


def _nest(rest: bytes, rng: Random) -> Splice:
    """Deeper than a recursive parser can follow, now and then."""
    opening, closing = rng.choice(_NESTED)
    depth = rng.choice(DEPTHS[:2] if rng.random() < 0.97 else DEPTHS)
    return 0, opening * depth + closing * (depth if rng.random() < 0.7 else 0)


def _flip(rest: bytes, rng: Random) -> Splice:
    return 1, bytes(byte ^ 1 << rng.randrange(8) for byte in rest[:1])


def _garbage(rest: bytes, rng: Random) -> Splice:
    length = rng.choice((1, 4, 16, 512))
    return length, rng.randbytes(length)


def _token(rest: bytes, rng: Random, tokens: Sequence[bytes] = TOKENS) -> Splice:
    return rng.choice((0, 0, 1, 2, 12)), rng.choice(tokens)


CHANGES: tuple[Callable[[bytes, Random], Splice], ...] = (
    *(_flip, _flip, _number, _garbage, _token, _token, _nest),
    lambda rest, rng: (1, rng.choice((b"\0", b"\1", b"\x7f", b"\x80", b"\xff", rng.randbytes(1)))),
    lambda rest, rng: (rng.choice((1, 2, 8, 64, 1 + rng.randrange(len(rest) + 1))), b""),
    lambda rest, rng: (0, rest[: rng.choice((1, 4, 16, 256))] * rng.choice((1, 2, 30))),
    lambda rest, rng: (len(rest), b""),
)


def change_bytes(data: bytes, rng: Random, tokens: Sequence[bytes] = ()) -> bytes:
    """One to four changes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        rest = data[at:]
        special = tokens and rng.random() < 0.3
        removed, new = _token(rest, rng, tokens) if special else rng.choice(CHANGES)(rest, rng)
        data = data[:at] + new + rest[removed:]
    return data[:MAX_BYTES] if len(data) > 4 * MAX_BYTES else data


def _members(root: Any) -> list[tuple[Any, Any]]:
    """Every list or dictionary in a JSON value with each of its keys."""
    found, waiting = list[tuple[Any, Any]](), [root]
    while waiting and len(found) < 2000:
        value = waiting.pop()
        if isinstance(value, dict | list):
            keys = [*value] if isinstance(value, dict) else range(len(value))
            found += [(value, key) for key in keys]
            waiting += [value[key] for key in keys]
    return found


def change_json(data: bytes, rng: Random, tokens: Sequence[bytes] = ()) -> bytes:
    """One to three values replaced, removed, renamed, moved or nested; now and then any bytes."""
    try:
        root = json.loads(data)
        if rng.random() < 0.25 or not _members(root):
            return change_bytes(data, rng, tokens)
        for _ in range(rng.choice((1, 1, 2, 3))):
            if not (members := _members(root)) or rng.random() < 0.01:
                root = rng.choice(JUNK)
                break
            _change_member(*rng.choice(members), *rng.choice(members), rng)
        return json.dumps(root).encode()
    except (ValueError, RecursionError):
        return change_bytes(data, rng, tokens)


def _change_member(parent: Any, key: Any, other: Any, other_key: Any, rng: Random) -> None:
    action = rng.randrange(10)
    # A copy: what is changed later must not be what the next input gets, nor a value a part of itself.
    junk, moved = deepcopy(rng.choice(JUNK)), deepcopy(other[other_key])
    if action < 5:
        parent[key] = junk
    elif action == 5:
        del parent[key]
    elif action == 6:
        parent[key] = moved
    elif action == 7:
        parent[key] = rng.choice(([parent[key]], {"a": parent[key]}, [parent[key]] * 3))
    elif isinstance(parent, dict):
        parent[rng.choice(TEXTS)] = parent[key] if action == 8 else parent.pop(key)
    else:
        parent.insert(key, junk if action == 8 else parent[key])


def change_lines(data: bytes, rng: Random, tokens: Sequence[bytes] = ()) -> bytes:
    """A changed text: fields of lines swapped, or any bytes changed."""
    if rng.random() < 0.6:
        return change_bytes(data, rng, tokens)
    lines = data.split(b"\n")
    at, separator = rng.randrange(len(lines)), rng.choice((b",", b" ", b"\t", b'"'))
    parts = lines[at].split(separator)
    parts[rng.randrange(len(parts))] = str(rng.choice(JUNK)).encode(errors="replace")
    lines[at] = separator.join(parts)
    if rng.random() < 0.2:
        rng.shuffle(lines)
    return b"\n".join(lines)


_VALUE = re.compile(rb'="[^"]*"|>[^<>]+<')
_ELEMENT = re.compile(rb"<(\w+)[^<>]*(?:/>|>[^<>]*</\1>)")


def change_xml(data: bytes, rng: Random, tokens: Sequence[bytes] = ()) -> bytes:
    """Values and elements replaced, removed or repeated; mostly still XML, now and then any bytes."""
    if rng.random() < 0.25:
        return change_bytes(data, rng, tokens)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list((_VALUE if rng.random() < 0.7 else _ELEMENT).finditer(data))
        if not places:
            return change_bytes(data, rng, tokens)
        place = rng.choice(places)
        found = place[0]
        if found.startswith(b"<"):
            new = rng.choice((b"", found * 2, found * 50, rng.choice(places)[0]))
        else:
            text = quoteattr(str(rng.choice(JUNK)).replace("\0", "")).encode(errors="replace")
            new = b"=" + text if found.startswith(b"=") else b">" + text.strip(b"'\"") + b"<"
        data = data[: place.start()] + new + data[place.end() :]
    return data


CHANGERS: dict[str, Callable[[bytes, Random, Sequence[bytes]], bytes]] = {
    "bytes": change_bytes,
    "json": change_json,
    "text": change_lines,
    "xml": change_xml,
}


# -- damage to a file, as a fault of a disk does it


def _lose(data: bytes, rng: Random) -> bytes:
    """Empty, longer, or something else."""
    return rng.choice((b"", data + rng.randbytes(rng.choice((1, 100, 5000))), repr(rng.choice(JUNK)).encode("utf-8")))


def _overwrite(data: bytes, rng: Random) -> bytes:
    """Random bytes, zeros or a part of the file itself in the place of others."""
    start, other, length = rng.randrange(len(data)), rng.randrange(len(data)), rng.choice((1, 16, 128, 4096))
    new = rng.choice((rng.randbytes(length), bytes(length), data[other : other + length]))
    return data[:start] + new + data[start + length :]


def _flip_one(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + _flip(data[at:], rng)[1] + data[at + 1 :]


DAMAGES: dict[str, tuple[str, Callable[[bytes, Random], bytes]]] = {
    "flip": ("a bit flipped", _flip_one),
    "cut": ("the end cut off", lambda data, rng: data[: rng.randrange(len(data))]),
    "garbage": ("garbage written", _overwrite),
    "lost": ("gone, empty or something else", _lose),
}


def damage(file: Path, rng: Random, name: str = "") -> None:
    """Damage of the given kind, or of any; in place, so that a file that is open somewhere changes there too."""
    name = name or rng.choice([*DAMAGES])
    if name == "lost" and rng.random() < 0.4:
        file.unlink()
        if rng.random() < 0.5:
            file.mkdir()
        return
    file.write_bytes(DAMAGES[name][1](file.read_bytes() or b"\0", rng))
