"""Damage to one of some files, as a fault of a disk does it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.campaign.mutate import JUNK


def flip(file: Path, rng: Random) -> None:
    """One bit."""
    with file.open("r+b") as stream:
        at = rng.randrange(max(1, file.stat().st_size))
        stream.seek(at)
        byte = stream.read(1) or b"\0"
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))


def cut(file: Path, rng: Random) -> None:
    """The end is missing, from any byte on."""
    os.truncate(file, rng.randrange(max(1, file.stat().st_size)))


def garbage(file: Path, rng: Random) -> None:
    """Random bytes, zeros or a part of the file itself in the place of others."""
    data = bytearray(file.read_bytes() or b"\0")
    start, length = rng.randrange(len(data)), rng.choice((1, 16, 128, 4096))
    other = rng.randrange(len(data))
    new = rng.choice((rng.randbytes(length), bytes(length), bytes(data[other : other + length])))
    data[start : start + length] = new
    file.write_bytes(data)


def lose(file: Path, rng: Random) -> None:
    """The file is gone, empty, longer, something else, or a folder of its name."""
    action = rng.randrange(5)
    if action == 0:
        file.write_bytes(b"")
    elif action == 1:
        with file.open("ab") as stream:
            stream.write(rng.randbytes(rng.choice((1, 100, 5000))))
    elif action == 2:
        file.write_text(repr(rng.choice(JUNK)), errors="replace")
    else:
        file.unlink()
        if action == 3:
            file.mkdir()


DAMAGES: dict[str, tuple[str, Callable[[Path, Random], None]]] = {
    "flip": ("a bit flipped", flip),
    "cut": ("the end cut off", cut),
    "garbage": ("garbage written", garbage),
    "lost": ("gone, empty or something else", lose),
}


def choose(files: Sequence[Path], rng: Random) -> Path:
    """Any of the files, small ones as often as large ones."""
    return rng.choice(sorted(files))
