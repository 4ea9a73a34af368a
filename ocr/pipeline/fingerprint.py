"""A digest of what the output of a stage depends on: its state, the code that this reaches, the libraries in use.

Code is followed through global names, closures and imports, also those inside functions, until it leaves what the user
and GlyphFeed wrote: libraries count by their versions, Python by its own. It is read from memory, not from its file,
which may have been edited since it was imported.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import inspect
import logging
import random
import re
import struct
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions
from importlib.util import resolve_name
from itertools import takewhile
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any, NoReturn

import numpy as np

from ocr.errors import ConfigError
from ocr.pipeline.sample import Sample

NEVER_PIXELS = (
    "ocr.errors",
    "ocr.checks",
    "ocr.atomic",
    "ocr.malloc",
    "ocr.pipeline.fingerprint",
    "ocr.pipeline.timing",
)
"""Modules that decide whether a stage runs or a file is written, never what is made of a page."""
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.local)
TRANSIENT = (logging.Logger, *_LOCKS, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
"""What code can use without its output depending on it."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, type(...), type(NotImplemented))
_RANDOM = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
_MISSING = object()
_OURS = __name__.partition(".")[0]
_IMPORT = dis.opmap["IMPORT_NAME"]
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_SITE_FOLDERS = {"site-packages", "dist-packages"}


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
    hashed.update(len(data).to_bytes(8, "little") + data)


def stages_digest(stages: tuple[object, ...]) -> str:
    """Digest of stages in their order: their state, the code that is loaded for them, the libraries that it uses.

    Comments and the text of docstrings do not count. Raises ConfigError for what no two runs can compare, such as an
    open file.
    """
    walk = _Walk()
    # Stages call methods of the sample that they are given, without naming its class.
    walk.add(Sample, "Sample")
    for stage in stages:
        walk.add(stage, type(stage).__qualname__)
    return walk.hash.hexdigest()


def code_digest(module_name: str) -> str:
    """Digest of all code and data of a loaded module, and of what that reaches."""
    walk = _Walk()
    walk.add(sys.modules[module_name], module_name)
    return walk.hash.hexdigest()


class _Walk:
    """Hashes objects and all that they reach; what was met before is a reference to its first occurrence."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self._numbers: dict[int, int] = {}
        # Objects are kept, so that their ids are not used again.
        self._met: list[object] = []
        self._waiting: deque[tuple[Any, str]] = deque()
        self._within: list[int] = []
        self._put("Python", sys.implementation.name, *map(str, sys.version_info[:2]))

    def add(self, value: object, where: str) -> None:
        """An object and all that it reaches; `where` is its name in messages."""
        self._value(value, where)
        while self._waiting:
            code, place = self._waiting.popleft()
            if isinstance(code, FunctionType):
                self._function(code, place)
            elif isinstance(code, ModuleType):
                self._module(code)
            else:
                self._class(code, place)

    def _put(self, *parts: str | bytes) -> None:
        for part in parts:
            feed(self.hash, part)

    def _is_new(self, value: object) -> bool:
        """Put the number of an object; true if it was not met before."""
        number = self._numbers.setdefault(id(value), len(self._numbers))
        self._put("object", str(number))
        if number < len(self._met):
            return False
        self._met.append(value)
        return True

    def _value(self, value: Any, where: str) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._put(kind.__name__, repr(value))
        elif kind in (list, tuple, dict, set, frozenset, MappingProxyType):
            self._container(value, where)
        elif (parts := _array_parts(value)) is not None:
            self._put("array", *parts)
        elif isinstance(value, ModuleType):
            self._code(value, value.__name__, "", where)
        elif isinstance(value, type):
            self._code(value, value.__module__, value.__qualname__, where)
        elif isinstance(value, FunctionType):
            self._code(value, value.__globals__.get("__name__", ""), value.__qualname__, where)
        elif (inner := _wrapped(value)) is not None:
            self._put("wrapper", kind.__qualname__, *_versions(kind.__module__))
            self._value(inner, where)
        elif self._is_new(value):
            self._object(value, where)

    def _container(self, value: Any, where: str) -> None:
        if id(value) in self._within:
            self._put("within itself")
            return
        self._within.append(id(value))
        self._put(type(value).__name__, str(len(value)))
        if isinstance(value, set | frozenset):
            self._put(*sorted(self._digest_alone(member, where) for member in value))
        elif isinstance(value, dict | MappingProxyType):
            for key, member in value.items():
                self._value(key, where)
                self._value(member, f"{where}[{key!r}]")
        else:
            for number, member in enumerate(value):
                self._value(member, f"{where}[{number}]")
        self._within.pop()

    def _digest_alone(self, value: Any, where: str) -> str:
        """The digest of a member of a set, which has no place of its own."""
        alone = _Walk()
        alone._within = self._within
        alone.add(value, where)
        return alone.hash.hexdigest()

    def _code(self, code: Any, module: str, name: str, where: str) -> None:
        """A class, function or module: followed if it is the user's or GlyphFeed's, otherwise named."""
        if _is_followed(module):
            if self._is_new(code):
                self._waiting.append((code, where))
            return
        self._put("name", module, name, *_versions(module))
        if isinstance(code, FunctionType):
            # A library's decorator holds what it decorates.
            self._closure(code, where)

    def _compiled(self, module: str, name: str) -> None:
        """Something without Python code: its name and version, or else the file that it is in."""
        self._put("name", module, name, *_versions(module))
        if _is_followed(module) and (file := getattr(sys.modules.get(module), "__file__", None)):
            self._put(Path(file).read_bytes())

    def _object(self, value: Any, where: str) -> None:
        kind = type(value)
        if hasattr(kind, "fingerprint_parts"):
            self._value((kind, value.fingerprint_parts()), where)
            return
        state = _state_of(value, where)
        if isinstance(state, str):
            self._compiled(getattr(value, "__module__", None) or kind.__module__, state)
            return
        for part in state:
            if isinstance(part, dict):
                self._put("state", str(len(part)))
                for name, member in part.items():
                    self._value(name, where)
                    self._value(member, f"{where}.{name}")
            else:
                self._value(part, where)

    def _function(self, function: FunctionType, where: str) -> None:
        self._put("function")
        self._value(function.__defaults__, f"{where}, a default argument")
        self._value(function.__kwdefaults__, f"{where}, a default argument")
        self._value(vars(function), where)
        self._closure(function, where)
        for code in _with_nested(function.__code__):
            # Numba changes other flags of a kernel that runs under a profiler.
            stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
            counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, stars
            names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
            self._put("code", code.co_code, code.co_exceptiontable, repr((counts, names)))
            self._value(_constants(code), where)
            self._globals(code, function.__globals__, where)
            self._imports(code, function.__globals__, where)

    def _closure(self, function: FunctionType, where: str) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                value = _MISSING
            self._named(value, f"{where}, the closed-over {name}")

    def _globals(self, code: CodeType, namespace: dict[str, Any], where: str) -> None:
        """The values of the global names that code reads."""
        for name in code.co_names:
            value = namespace.get(name, _MISSING)
            if _is_code(value):
                self._value(value, where)  # Even if it is only an attribute that has this name: that changes nothing.
            elif value is not _MISSING:
                for attributes in _read_of(name, code):
                    self._read(value, (name, *attributes), where)

    def _read(self, value: Any, names: tuple[str, ...], where: str) -> None:
        """A global, or what is read of one that is a module."""
        for depth, name in enumerate(names[1:], 1):
            if not isinstance(value, ModuleType) or not _is_followed(value.__name__):
                names = names[:depth]
                break
            value = getattr(value, name, _MISSING)
        self._named(value, f"{where}, the global {'.'.join(names)}")

    def _imports(self, code: CodeType, namespace: dict[str, Any], where: str) -> None:
        """What imports inside a function bring: they need not have run yet."""
        if _IMPORT not in code.co_code[::2]:
            return
        package = namespace.get("__package__") or str(namespace.get("__name__", "")).rpartition(".")[0]
        for level, names, operation in zip(*(_operations(code)[first:] for first in range(3)), strict=False):
            if operation.opname == "IMPORT_NAME":
                self._import("." * level.argval + operation.argval, package, names.argval or (), where)

    def _import(self, module: str, package: str, names: tuple[str, ...], where: str) -> None:
        try:
            found = import_module(resolve_name(module, package))
        except Exception:  # What is missing or broken can be in a branch that never runs.
            self._put("missing", module)
            return
        if not names or not _is_followed(found.__name__):
            self._value(found, where)
            return
        for name in names:
            value = found if name == "*" else getattr(found, name, _MISSING)
            if value is _MISSING:
                self._import(f"{found.__name__}.{name}", "", (), where)
            else:
                self._named(value, f"{where}, the imported {name}")

    def _named(self, value: Any, where: str) -> None:
        """What a name stands for in code."""
        if value is _MISSING or isinstance(value, TRANSIENT):
            self._put("missing" if value is _MISSING else "transient")
        else:
            self._value(value, where)

    def _class(self, kind: type, where: str) -> None:
        self._put("class", kind.__qualname__)
        for base in (type(kind), *kind.__bases__):
            self._value(base, where)
        for name, member in sorted(vars(kind).items()):
            # Of the names with underscores around them only methods do anything with a page.
            is_about = name.startswith("__") and not isinstance(member, FunctionType | staticmethod | classmethod)
            if not is_about and name != "_abc_impl":
                self._put(name)
                self._named(member, f"{where}.{name}")

    def _module(self, module: ModuleType) -> None:
        if not (getattr(module, "__file__", None) or "").endswith(".py"):
            self._compiled(module.__name__, "")
        for name, value in sorted(vars(module).items()):
            if not name.startswith("__"):
                self._put(name)
                self._named(value, f"{module.__name__}.{name}")


def _is_code(value: Any) -> bool:
    """Whether a value is code, which is the same in all runs of a program."""
    if isinstance(value, ModuleType):
        return not _is_followed(value.__name__)
    return isinstance(value, FunctionType | type) or _is_kernel(value)


def _is_kernel(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numba" and hasattr(value, "py_func")


@functools.cache
def _operations(code: CodeType) -> list[dis.Instruction]:
    """Made for little code only: the 7,000 operations of the default stages would take 18 ms."""
    return [one for one in dis.get_instructions(code) if one.opname not in ("EXTENDED_ARG", "NOP")]


def _read_of(name: str, code: CodeType) -> dict[tuple[str, ...], None]:
    """The attributes that code reads of a global, once each; nothing if only an attribute has this name."""
    found: dict[tuple[str, ...], None] = {}
    operations = _operations(code)
    for number, one in enumerate(operations, 1):
        if one.opname in _READS and one.argval == name:
            attributes = takewhile(lambda one: one.opname in ("LOAD_ATTR", "LOAD_METHOD"), operations[number:])
            found[tuple(one.argval for one in attributes)] = None
    return found


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def _constants(code: CodeType) -> tuple[Any, ...]:
    """The constants of code without its docstring, and with a mark where nested code is."""
    constants = ["code" if isinstance(constant, CodeType) else constant for constant in code.co_consts]
    if sys.version_info >= (3, 14):
        is_documented = bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    else:  # The first constant of a function is its docstring or None; the body of a class has no locals of its own.
        is_documented = bool(code.co_flags & inspect.CO_NEWLOCALS) and not code.co_name.startswith("<")
    if is_documented and constants:
        constants[0] = None
    return tuple(constants)


def _wrapped(value: Any) -> tuple[Any, ...] | None:
    """What a wrapper of functions holds, or the name of a slot; None for anything else."""
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, staticmethod | classmethod | functools._lru_cache_wrapper):
        return (value.__wrapped__,)
    if isinstance(value, GetSetDescriptorType | MemberDescriptorType):
        return (value.__name__,)
    if _is_kernel(value):
        return value.py_func, value.targetoptions
    return None


def _array_parts(value: Any) -> tuple[str | bytes, ...] | None:
    """Type, shape and bytes of an array or tensor; None for anything else."""
    if isinstance(value, np.generic) or type(value) in (np.ndarray, np.memmap):
        array = np.asarray(value)
        return None if array.dtype.hasobject else (repr(array.dtype), str(array.shape), array.tobytes())
    torch = sys.modules.get("torch")
    # Sparse and quantised tensors have parts, and one without memory has no bytes: they count as they are pickled.
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    if value.layout != torch.strided or value.is_meta or value.is_quantized:
        return None
    flat = value.detach().cpu().contiguous().reshape(-1)
    return str(value.dtype), str(tuple(value.shape)), flat.view(torch.uint8).numpy().tobytes()


def _state_of(value: Any, where: str) -> tuple[Any, ...] | str:
    """What would make an equal object: a function, its arguments and a state; or the name of a global object."""
    torch, omegaconf = sys.modules.get("torch"), sys.modules.get("omegaconf")
    if isinstance(value, _RANDOM) or (torch is not None and isinstance(value, torch.Generator)):
        _refuse(where, value, "it draws at random. Make the stage a RandomStage, which is given a generator")
    if isinstance(value, struct.Struct):
        return struct.Struct, (value.format,)
    if omegaconf is not None and omegaconf.OmegaConf.is_config(value):
        return (omegaconf.OmegaConf.to_container(value, resolve=True),)  # Its own state holds caches and the parent.
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        found = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception as error:
        _refuse(where, value, f"{error}. Make it in the method that uses it, or leave it out in `__getstate__`", error)
    if isinstance(found, str):
        return found
    function, arguments, state, items, pairs = (*found, None, None, None)[:5]
    if isinstance(state, list) and is_dataclass(value) and len(state) == len(fields(value)):
        # A frozen one with slots: messages name its fields.
        state = dict(zip((field.name for field in fields(value)), state, strict=True))
    return function, arguments, *(state if isinstance(state, tuple) else (state,)), list(items or ()), list(pairs or ())


def _refuse(where: str, value: Any, reason: str, cause: Exception | None = None) -> NoReturn:
    """Raise for what no two runs can compare."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise ConfigError(
        f"transforms: {where} is of type {kind}, which two runs cannot compare, so samples cannot be cached: {reason}; "
        "or set data.cache=off",
        setting=where,
        value=kind,  # Not the object: errors are pickled, and it may be a lock.
    ) from cause


@functools.cache
def _is_followed(module: str) -> bool:
    """Whether the code of a module counts, and not only its name and version: the user's and GlyphFeed's."""
    top = module.partition(".")[0]
    if top == _OURS:  # Even if it is installed: between two releases only its code tells.
        return not f"{module}.".startswith(tuple(f"{name}." for name in NEVER_PIXELS))
    if top in sys.stdlib_module_names:
        return False
    known = sys.modules.get(module) or sys.modules.get(top)
    file = getattr(known, "__file__", None) or next(iter(getattr(known, "__path__", ())), "")
    return _SITE_FOLDERS.isdisjoint(Path(file).parts) or not _versions(module)


def _versions(module: str) -> tuple[str, ...]:
    """`name==version` of the library that a module is from and of all that it requires."""
    top = module.partition(".")[0]
    return () if top == _OURS or top in sys.stdlib_module_names else _library(top)


@functools.cache
def _library(top: str) -> tuple[str, ...]:
    """Versions as they were first seen: an upgrade does not change what this process has loaded."""
    loaded = getattr(sys.modules.get(top), "__version__", None)
    found = {f"{top}, loaded": loaded} if isinstance(loaded, str) else {}
    _add_installed(top, found)
    # Only the file lists of all distributions tell who installs the others, such as `google`. They take 0.3 s.
    for owner in () if found else packages_distributions().get(top, ()):
        _add_installed(owner, found)
    return tuple(sorted(f"{name}=={version}" for name, version in found.items()))


def _add_installed(name: str, found: dict[str, str]) -> None:
    """The version of a distribution and of all that it requires."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return
    found[name] = about["Version"]
    for required in about.get_all("Requires-Dist", ()):
        other = re.split(r"[^\w.-]", required, maxsplit=1)[0]
        if other not in found and not re.search("extra *==", required):
            _add_installed(other, found)
