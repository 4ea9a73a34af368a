"""A digest of what a stage's output depends on: its parameters, its source code, the libraries that touch pixels."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

PIXEL_LIBRARIES = ("numpy", "opencv-python-headless", "opencv-python", "pillow", "simplejpeg", "pyclipper", "numba")


def digest(*parts: bytes | str) -> str:
    """A short name for some bytes; parts cannot run into each other.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()


@lru_cache(maxsize=256)
def stages_digest(stages: tuple[object, ...]) -> str:
    """Digest of stages in their order: `repr` for the parameters, the code of their modules, library versions."""
    parts = [part for stage in stages for part in (repr(stage), code_digest(type(stage).__module__))]
    return digest(*parts, library_versions())


@lru_cache
def code_digest(module_name: str) -> str:
    """Digest of a module's code and of all modules of this package that it imports; comments do not count."""
    seen: dict[str, str] = {}
    _collect(module_name, seen)
    return digest(*(f"{name}\n{code}" for name, code in sorted(seen.items())))


def _collect(module_name: str, seen: dict[str, str]) -> None:
    if module_name in seen:
        return
    module = sys.modules[module_name]
    package = module_name.split(".")[0]
    seen[module_name] = _code(module)
    for value in vars(module).values():
        origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(origin, str) and origin.split(".")[0] == package and origin in sys.modules:
            _collect(origin, seen)


def _code(module: ModuleType) -> str:
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return ""  # Built-in or interactive: its name and the library versions have to do.
    return ast.unparse(ast.parse(source))


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
