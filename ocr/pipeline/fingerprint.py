"""A digest of what a stage's output depends on: its parameters, its source code, the libraries that touch pixels."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import resolve_name
from types import ModuleType
from typing import NamedTuple

import xxhash

OPENCV_WHEELS = tuple(
    f"opencv-{contrib}python{headless}" for contrib in ("", "contrib-") for headless in ("", "-headless")
)
PIXEL_LIBRARIES = ("numpy", *OPENCV_WHEELS, "pillow", "simplejpeg", "pyclipper", "numba", "albumentations", "albucore")


JUST_NOW_NS = 2_000_000_000


class Signature(NamedTuple):
    """What the file system tells of a file: any change of the file shows here, and so does a copy."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    def settled(self) -> Signature:
        """As it is, or UNKNOWN where the file changed just now: it may change again within one tick of the clock."""
        return self if time.time_ns() - max(self.mtime_ns, self.ctime_ns) > JUST_NOW_NS else UNKNOWN


UNKNOWN = Signature(-1, 0, 0, 0)


def digest(*parts: bytes | str) -> str:
    """A short name for some bytes; parts cannot run into each other.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        # File names need not be UTF-8.
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()


def content_digest(data: bytes) -> bytes:
    """Tells one file from another, at the speed of memory."""
    return xxhash.xxh3_128_digest(data)


def stages_digest(stages: tuple[object, ...]) -> str:
    """Digest of stages in their order: `repr` for the parameters, the code of their modules, library versions."""
    parts = [part for stage in stages for part in (repr(stage), code_digest(type(stage).__module__))]
    return digest(*parts, library_versions())


@lru_cache
def code_digest(module_name: str) -> str:
    """Digest of a module's code and of what it imports from its own package and this one; comments do not count."""
    seen: dict[str, str] = {}
    _collect(module_name, (module_name.split(".")[0], __name__.split(".")[0]), seen)
    return digest(*(f"{name}\n{code}" for name, code in sorted(seen.items())))


def _collect(module_name: str, packages: tuple[str, ...], seen: dict[str, str]) -> None:
    module = sys.modules[module_name]
    tree = _parse(module)
    # A script goes by another name in the worker processes it starts.
    seen[module_name.replace("__mp_main__", "__main__")] = ast.unparse(tree)
    for name in _imports(tree, module):
        if name.split(".")[0] in packages and name in sys.modules and name not in seen:
            _collect(name, packages, seen)


def _parse(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return ast.Module([], [])  # Built-in or interactive: its name and the library versions have to do.


def _imports(tree: ast.Module, module: ModuleType) -> Iterator[str]:
    """Names of modules that are loaded with this one; constants come from them too, and do not tell where from."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), module.__package__)
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@lru_cache
def library_versions() -> str:
    """Versions of the installed libraries that touch pixels."""
    found = []
    for name in PIXEL_LIBRARIES:
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    return " ".join(found)
