"""A digest of what a stage's output depends on: its parameters, its code, the libraries that it uses."""

from __future__ import annotations

import hashlib
import sys

import xxhash

from ocr.pipeline.reach.walk import Reach
from ocr.pipeline.sample import Sample


def digest(*parts: bytes | str) -> str:
    """Digest of some parts, in hex; parts cannot run into each other.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        feed(hashed, part)
    return hashed.hexdigest()


def feed(hashed: hashlib.blake2b, part: bytes | str) -> None:
    """Add one part to a digest that is being made."""
    # File names need not be UTF-8.
    data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
    hashed.update(len(data).to_bytes(8, "little"))
    hashed.update(data)


def content_digest(data: bytes) -> bytes:
    """Digest of a file's content, computed at the speed of memory."""
    return xxhash.xxh3_128_digest(data)


def stages_digest(stages: tuple[object, ...]) -> str:
    """Digest of stages in their order: their state, the code that is loaded for them, the libraries that it uses.

    Comments, docstrings and the wording of errors, warnings and log messages do not count. Raises ConfigError for what
    no two runs can compare, such as an open file.
    """
    reach = Reach()
    # Stages call methods of the sample that they are given, without naming its class.
    reach.add(Sample, "Sample")
    for stage in stages:
        reach.add(stage, type(stage).__qualname__)
    return reach.digest()


def code_digest(module_name: str) -> str:
    """Digest of all code and data of a loaded module, and of what that reaches."""
    reach = Reach()
    reach.add(sys.modules[module_name], module_name)
    return reach.digest()
