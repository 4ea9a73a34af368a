"""A digest of what a stage's output depends on: its parameters, its source code, the libraries that touch pixels."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import resolve_name
from types import ModuleType

import xxhash

OPENCV_WHEELS = tuple(
    f"opencv-{contrib}python{headless}" for contrib in ("", "contrib-") for headless in ("", "-headless")
)
PIXEL_LIBRARIES = ("numpy", *OPENCV_WHEELS, "pillow", "simplejpeg", "pyclipper", "numba", "albumentations", "albucore")
NEVER_PIXELS = ("ocr.errors", "ocr.checks", "ocr.atomic")
"""Modules that decide whether a stage runs or a file is written, never what is made of a page."""
LOGGERS = ("log", "logger", "logging", "warnings")
LOG_METHODS = ("debug", "info", "warning", "error", "exception", "critical", "warn")


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
    """Digest of stages in their order: `repr` for the parameters, the code of their modules, library versions."""
    parts = [part for stage in stages for part in (repr(stage), code_digest(type(stage).__module__))]
    return digest(*parts, library_versions())


@lru_cache
def code_digest(module_name: str) -> str:
    """Digest of a module's code and of what it imports from its own package and this one.

    Comments, docstrings and the wording of errors, warnings and log messages do not count.
    """
    seen: dict[str, str] = {}
    _collect(module_name, (module_name.split(".")[0], __name__.split(".")[0]), seen)
    return digest(*(f"{name}\n{code}" for name, code in sorted(seen.items())))


def _collect(module_name: str, packages: tuple[str, ...], seen: dict[str, str]) -> None:
    module = sys.modules[module_name]
    tree = _parse(module)
    # A script goes by another name in the worker processes it starts.
    seen[module_name.replace("__mp_main__", "__main__")] = ast.unparse(_WithoutWording().visit(tree))
    for name in _imports(tree, module):
        is_new = name in sys.modules and name not in seen and name not in NEVER_PIXELS
        if is_new and name.split(".")[0] in packages:
            _collect(name, packages, seen)


def _parse(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return ast.Module([], [])  # Built-in or interactive: only its name and the library versions count.


class _WithoutWording(ast.NodeTransformer):
    """Removes what only people read from a syntax tree."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        if isinstance(node.value, ast.Constant):
            return None  # A docstring.
        if isinstance(node.value, ast.Call) and _is_logging(node.value.func):
            return ast.Expr(_without_texts(node.value))
        self.generic_visit(node)
        return node

    def visit_Pass(self, node: ast.Pass) -> None:
        return None  # A docstring makes it superfluous.

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return ast.Raise(_without_texts(node.exc), node.cause) if isinstance(node.exc, ast.Call) else node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.Assert(node.test)


def _is_logging(function: ast.expr) -> bool:
    """Whether this is log.warning, self._logger.info, warnings.warn, warn_once or the like."""
    match function:
        case ast.Name(id=name):
            return name.strip("_").startswith("warn")
        case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=method):
            return method in LOG_METHODS and owner.strip("_").lower() in LOGGERS
    return False


def _without_texts(call: ast.Call) -> ast.Call:
    texts = [argument for argument in (*call.args, *call.keywords) if _is_text(argument)]
    return ast.Call(
        call.func,
        [argument for argument in call.args if argument not in texts],
        [keyword for keyword in call.keywords if keyword not in texts],
    )


def _is_text(node: ast.AST) -> bool:
    """Whether an expression writes a message: a text, or one that is formatted, joined or chosen."""
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.keyword(value=part) | ast.Call(func=ast.Attribute(value=part)):
            return _is_text(part)
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            return _is_text(left) or _is_text(right)
    return False


def _imports(tree: ast.Module, module: ModuleType) -> Iterator[str]:
    """Names of modules that are loaded with this one: its constants may come from any of them."""
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
