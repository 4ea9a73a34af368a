"""Everything that the output of some objects depends on: their state, their code, and all that the code reaches.

Code is followed through global names, closures and imports, also those inside functions, until it leaves what the user
and this package wrote: installed distributions count by their versions, Python by its own.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import sys
from collections import deque
from importlib import import_module
from importlib.util import resolve_name
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from ocr.pipeline.reach.code_form import Import, code_form
from ocr.pipeline.reach.field_types import field_types
from ocr.pipeline.reach.origin import is_followed, versions_of
from ocr.pipeline.reach.state import TRANSIENT, array_parts, state_of

_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, type(...), type(NotImplemented))
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType)
_WRAPPERS = (staticmethod, classmethod, functools._lru_cache_wrapper)
_MISSING = object()


class Reach:
    """Hashes objects one after the other; what was met before is a reference to its first occurrence."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._numbers: dict[int, int] = {}
        # Objects are kept, so that their ids are not used again.
        self._met: list[object] = []
        self._waiting: deque[tuple[Any, str]] = deque()
        self._within: list[int] = []
        self.followed: list[str] = []
        """Modules whose code counts."""
        self._put("Python", sys.implementation.name, *map(str, sys.version_info[:2]))

    def add(self, value: object, where: str) -> None:
        """An object and all that it reaches; `where` is its name in messages."""
        self._value(value, where)
        while self._waiting:
            code, place = self._waiting.popleft()
            if isinstance(code, FunctionType):
                self._function(code, place)
            elif isinstance(code, ModuleType):
                self._whole_module(code)
            else:
                self._class(code, place)

    def digest(self) -> str:
        """Digest of all that was added, in hex."""
        return self._hash.hexdigest()

    def _put(self, *parts: str | bytes) -> None:
        for part in parts:
            data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
            self._hash.update(len(data).to_bytes(8, "little") + data)

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
        elif (parts := array_parts(value)) is not None:
            self._put("array", *parts)
        elif isinstance(value, ModuleType):
            self._code(value, value.__name__, "", where)
        elif isinstance(value, type):
            self._code(value, value.__module__, value.__qualname__, where)
        elif isinstance(value, FunctionType):
            self._code(value, value.__globals__.get("__name__", ""), value.__qualname__, where)
        elif not self._wrapper(value, where):
            self._object(value, where)

    def _container(self, value: Any, where: str) -> None:
        if id(value) in self._within:
            self._put("within itself", str(len(self._within) - self._within.index(id(value))))
            return
        self._within.append(id(value))
        self._put(type(value).__name__, str(len(value)))
        if isinstance(value, set | frozenset):
            self._put(*sorted(_digest_alone(member, where) for member in value))
        elif isinstance(value, dict | MappingProxyType):
            for key, member in value.items():
                self._value(key, where)
                self._value(member, f"{where}[{key!r}]")
        else:
            for number, member in enumerate(value):
                self._value(member, f"{where}[{number}]")
        self._within.pop()

    def _code(self, code: Any, module: str, name: str, where: str) -> None:
        """A class, function or module: followed if it is the user's or ours, otherwise named."""
        if is_followed(module):
            if self._is_new(code):
                self._waiting.append((code, where))
            return
        self._name(module, name)
        if isinstance(code, FunctionType):
            # A library's decorator holds what it decorates.
            self._closure(code, where, TRANSIENT)

    def _name(self, module: str, name: str) -> None:
        """What is not followed: its name, and the distributions that it is from."""
        self._put("name", module, name, *versions_of(module))

    def _wrapper(self, value: Any, where: str) -> bool:
        """Whether this wraps functions, which were followed."""
        if isinstance(value, property):
            inner: tuple[Any, ...] = (value.fget, value.fset, value.fdel)
        elif isinstance(value, functools.cached_property):
            inner = (value.func,)
        elif isinstance(value, MethodType):
            inner = (value.__func__, value.__self__)
        elif isinstance(value, _WRAPPERS):
            inner = (value.__wrapped__,)
        elif type(value).__module__.split(".")[0] == "numba" and hasattr(value, "py_func"):
            self._name("numba", "")
            inner = (value.py_func, value.targetoptions)
        elif isinstance(value, _DESCRIPTORS):
            inner = (value.__name__,)
        elif isinstance(value, BuiltinFunctionType):
            owner = value.__self__
            inner = (value.__name__, None if isinstance(owner, ModuleType) else owner)
            self._extension(value.__module__ or "builtins", value.__name__)
        else:
            return False
        self._put("wrapper", type(value).__qualname__)
        for part in inner:
            self._value(part, where)
        return True

    def _extension(self, module: str, name: str) -> None:
        """Something compiled: its name and version, or else the file that it is in."""
        self._name(module, name)
        if is_followed(module) and (file := getattr(sys.modules.get(module), "__file__", None)):
            with open(file, "rb") as stream:
                self._put(hashlib.blake2b(stream.read()).digest())

    def _object(self, value: Any, where: str) -> None:
        if not self._is_new(value):
            return
        self._put("instance")
        kind = type(value)
        if hasattr(kind, "fingerprint_parts"):
            self._value(kind, where)
            self._value(value.fingerprint_parts(), where)
            return
        state = state_of(value, where)
        if isinstance(state, str):
            self._extension(getattr(value, "__module__", None) or kind.__module__, state)
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
        form = code_form(function.__code__)
        self.followed.append(function.__globals__.get("__name__", ""))
        self._put("function", form.digest)
        self._value(function.__defaults__, f"{where}, a default argument")
        self._value(function.__kwdefaults__, f"{where}, a default argument")
        self._closure(function, where)
        self._value(vars(function), where)
        for chain in form.names:
            self._global(function.__globals__, chain, where)
        for statement in form.imports:
            self._import(statement, function.__globals__, where)

    def _closure(self, function: FunctionType, where: str, accepted: tuple[type, ...] = ()) -> None:
        cells: tuple[CellType, ...] = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                self._put("empty cell")
                continue
            if isinstance(value, accepted):
                self._put("transient", type(value).__qualname__)
            else:
                self._value(value, f"{where}, the closed-over {name}")

    def _global(self, namespace: dict[str, Any], chain: tuple[str, ...], where: str) -> None:
        name, *attributes = chain
        value = namespace.get(name, _MISSING)
        if value is _MISSING:
            self._put("builtin" if hasattr(builtins, name) else "missing", name)
            return
        while isinstance(value, ModuleType) and attributes and is_followed(value.__name__):
            name = f"{name}.{attributes[0]}"
            value = getattr(value, attributes.pop(0), _MISSING)
        self._named_value(value, f"{where}, the global {name}")

    def _named_value(self, value: Any, where: str) -> None:
        if value is _MISSING:
            self._put("missing")
        elif isinstance(value, TRANSIENT):
            self._put("transient", type(value).__qualname__)
        else:
            self._value(value, where)

    def _import(self, statement: Import, namespace: dict[str, Any], where: str) -> None:
        """What an import inside a function brings: it need not have run yet."""
        package = namespace.get("__package__") or str(namespace.get("__name__", "")).rpartition(".")[0]
        try:
            origin = resolve_name("." * statement.level + statement.module, package)
            if not is_followed(origin):
                self._name(origin, "")
                return
            module = import_module(origin)
        except ImportError:
            self._put("missing", statement.module)
            return
        if not statement.names:
            self._value(module, where)
        for name in statement.names:
            value = module if name == "*" else getattr(module, name, _MISSING)
            if value is _MISSING:
                self._import(Import(f"{origin}.{name}", 0, ()), namespace, where)
            else:
                self._named_value(value, f"{where}, the imported {name}")

    def _class(self, kind: type, where: str) -> None:
        self.followed.append(kind.__module__)
        self._put("class", kind.__qualname__)
        for base in (type(kind), *kind.__bases__, *field_types(kind)):
            self._value(base, where)
        for name, member in sorted(vars(kind).items()):
            # Of the names with underscores around them only methods do anything with a page.
            is_about = name.startswith("__") and not isinstance(member, FunctionType | staticmethod | classmethod)
            if not is_about and name != "_abc_impl":
                self._put(name)
                self._named_value(member, f"{where}.{name}")

    def _whole_module(self, module: ModuleType) -> None:
        self.followed.append(module.__name__)
        if not (getattr(module, "__file__", None) or "").endswith(".py"):
            self._extension(module.__name__, "")
        for name, value in sorted(vars(module).items()):
            if not name.startswith("__"):
                self._put(name)
                self._named_value(value, f"{module.__name__}.{name}")


def _digest_alone(value: Any, where: str) -> str:
    """The digest of a member of a set, which has no place of its own."""
    alone = Reach()
    alone.add(value, where)
    return alone.digest()
