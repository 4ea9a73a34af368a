"""Damaged copies of valid files: bytes, texts and JSON values, a few changes each; and damage as a disk does it."""

from __future__ import annotations

import json
import os
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
_NESTED = ((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b'{"a":', b"}"), (b"[{", b"}]"), (b"<a>", b"</a>"), (b"-", b""))


def flip_bit(data: bytearray, rng: Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(data: bytearray, rng: Random) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def set_number(data: bytearray, rng: Random) -> None:
    """An extreme integer of 2, 4 or 8 bytes."""
    width = rng.choice((2, 4, 8))
    at = rng.randrange(max(1, len(data) - width))
    value = rng.choice((0, 1, 2, 2**31, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1, 0xFFFF, 0x7FFF, rng.getrandbits(64)))
    data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, rng.choice(("little", "big")))


def remove(data: bytearray, rng: Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 2, 8, 64, 1 + rng.randrange(len(data))))]


def repeat(data: bytearray, rng: Random) -> None:
    start = rng.randrange(len(data))
    part = bytes(data[start : start + rng.choice((1, 4, 16, 256))])
    data[start:start] = part * rng.choice((1, 2, 30))


def cut(data: bytearray, rng: Random) -> None:
    del data[rng.randrange(len(data)) :]


def garbage(data: bytearray, rng: Random) -> None:
    start = rng.randrange(len(data))
    length = rng.choice((1, 4, 16, 512))
    data[start : start + length] = rng.randbytes(length)


def insert_token(data: bytearray, rng: Random) -> None:
    start = rng.randrange(len(data) + 1)
    end = start + rng.choice((0, 0, 1, 2, 12))
    data[start:end] = rng.choice(TOKENS)


def nest(data: bytearray, rng: Random) -> None:
    """Deeper than a recursive parser can follow, now and then."""
    opening, closing = rng.choice(_NESTED)
    depth = rng.choice(DEPTHS[:2]) if rng.random() < 0.97 else rng.choice(DEPTHS)
    start = rng.randrange(len(data) + 1)
    data[start:start] = opening * depth + closing * (depth if rng.random() < 0.7 else 0)


CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    *(flip_bit, flip_bit, set_byte, set_number, remove, repeat, cut, garbage, insert_token, insert_token, nest),
)


def change_bytes(data: bytes, rng: Random, tokens: Sequence[bytes] = ()) -> bytes:
    """One to four changes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not changed:
            break
        if tokens and rng.random() < 0.3:
            start = rng.randrange(len(changed) + 1)
            changed[start : start + rng.choice((0, 1, 4, 12))] = rng.choice(tokens)
        else:
            rng.choice(CHANGES)(changed, rng)
    return bytes(changed[:MAX_BYTES] if len(changed) > 4 * MAX_BYTES else changed)


def paths_in(root: Any) -> list[tuple[Any, ...]]:
    """The path of every value in a JSON value."""
    found: list[tuple[Any, ...]] = []
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), root)]
    while waiting and len(found) < 2000:
        path, value = waiting.pop()
        found.append(path)
        if isinstance(value, dict):
            waiting += [((*path, key), child) for key, child in value.items()]
        elif isinstance(value, list):
            waiting += [((*path, key), child) for key, child in enumerate(value)]
    return found


def change_json(root: Any, rng: Random) -> Any:
    """One to three values replaced, removed, renamed, moved or nested."""
    root = json.loads(json.dumps(root))
    for _ in range(rng.choice((1, 1, 2, 3))):
        paths = paths_in(root)
        path = rng.choice(paths)
        if not path:
            if rng.random() < 0.05:
                return _junk(rng)
            continue
        parent = _at(root, path[:-1])
        _change_member(parent, path[-1], rng, lambda paths=paths: _at(root, rng.choice(paths)))
    return root


def _change_member(parent: Any, key: Any, rng: Random, other: Callable[[], Any]) -> None:
    action = rng.randrange(10)
    if action < 5:
        parent[key] = _junk(rng)
    elif action == 5:
        del parent[key]
    elif action == 6:
        # A copy: a value must not become a part of itself.
        parent[key] = json.loads(json.dumps(other()))
    elif action == 7:
        parent[key] = rng.choice(([parent[key]], {"a": parent[key]}, [parent[key]] * 3))
    elif isinstance(parent, dict):
        parent[rng.choice(TEXTS)] = parent[key] if action == 8 else parent.pop(key)
    else:
        parent.insert(key, _junk(rng) if action == 8 else parent[key])


def _junk(rng: Random) -> Any:
    """A copy: what is changed later must not be what the next input gets."""
    return deepcopy(rng.choice(JUNK))


def _at(root: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        root = root[key]
    return root


def change_json_bytes(data: bytes, rng: Random, tokens: Sequence[bytes] = ()) -> bytes:
    """A changed JSON text: mostly still JSON, now and then any bytes."""
    if rng.random() < 0.25:
        return change_bytes(data, rng, tokens)
    try:
        root = json.loads(data)
        return json.dumps(change_json(root, rng)).encode()
    except (ValueError, RecursionError):
        return change_bytes(data, rng, tokens)


def change_lines(data: bytes, rng: Random, tokens: Sequence[bytes] = ()) -> bytes:
    """A changed text: fields of lines swapped, or any bytes changed."""
    if rng.random() < 0.6:
        return change_bytes(data, rng, tokens)
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    separator = rng.choice((b",", b" ", b"\t", b'"'))
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
    "json": change_json_bytes,
    "text": change_lines,
    "xml": change_xml,
}


# -- damage to a file, as a fault of a disk does it


def flip_file(file: Path, rng: Random) -> None:
    data = bytearray(file.read_bytes() or b"\0")
    flip_bit(data, rng)
    with file.open("r+b") as stream:  # In place: a file that is open somewhere changes there too.
        stream.write(data)


def cut_file(file: Path, rng: Random) -> None:
    os.truncate(file, rng.randrange(max(1, file.stat().st_size)))


def fill_file(file: Path, rng: Random) -> None:
    """Random bytes, zeros or a part of the file itself in the place of others."""
    data = bytearray(file.read_bytes() or b"\0")
    start, other, length = rng.randrange(len(data)), rng.randrange(len(data)), rng.choice((1, 16, 128, 4096))
    data[start : start + length] = rng.choice((rng.randbytes(length), bytes(length), data[other : other + length]))
    file.write_bytes(data)


def lose_file(file: Path, rng: Random) -> None:
    """The file is gone, empty, longer, something else, or a folder of its name."""
    action = rng.randrange(5)
    if action == 0:
        file.write_bytes(b"")
    elif action == 1:
        file.write_bytes(file.read_bytes() + rng.randbytes(rng.choice((1, 100, 5000))))
    elif action == 2:
        file.write_text(repr(rng.choice(JUNK)), errors="replace")
    else:
        file.unlink()
        if action == 3:
            file.mkdir()


DAMAGES: dict[str, tuple[str, Callable[[Path, Random], None]]] = {
    "flip": ("a bit flipped", flip_file),
    "cut": ("the end cut off", cut_file),
    "garbage": ("garbage written", fill_file),
    "lost": ("gone, empty or something else", lose_file),
}


def damage(file: Path, rng: Random, name: str = "") -> None:
    """Of the given kind, or of any."""
    DAMAGES[name or rng.choice([*DAMAGES])][1](file, rng)
