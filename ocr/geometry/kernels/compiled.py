"""How a kernel is compiled: without the GIL, and kept on disk until a file of its folder changes."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from ocr.atomic import replacing
from ocr.errors import OutputError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
DIGEST_BYTES = 16


def compiled(**options: Any) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """A decorator: `numba.njit` that releases the GIL, divides as NumPy does, and keeps its machine code on disk."""

    def compile_lazily(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        dispatcher: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
        # No folder can be written to: the kernel works, and is compiled again by every process.
        with suppress(RuntimeError):
            dispatcher._cache = KernelCache(function)
        kernel: Callable[Parameters, Result] = dispatcher
        return kernel

    return compile_lazily


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache, but machine code is stale once any file of the kernel's folder has changed, not only its own.

    It is kept where Numba decides: NUMBA_CACHE_DIR, `__pycache__`, or the user's cache folder if that is read-only.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        source = Path(inspect.getfile(function))
        name = f"{source.stem}.{function.__qualname__}"
        self._cache_file = KernelFiles(Path(self.cache_path), name, sources_digest(source.parent))

    def holds(self, signature: tuple[Any, ...], codegen: Any) -> bool:
        """Whether the machine code for these argument types is on disk."""
        return bool(self._cache_file.exists(self._index_key(signature, codegen)))


class KernelFiles:
    """One file per kernel, argument types, processor and version: processes that compile at once cannot mix them up."""

    def __init__(self, folder: Path, name: str, stamp: bytes) -> None:
        self.folder, self.name, self.stamp = folder, name, stamp

    def exists(self, key: tuple[Any, ...]) -> bool:
        """Whether there is a file, made from the sources as they are now."""
        return self._fresh_data(key) is not None

    def load(self, key: tuple[Any, ...]) -> Any:
        """What was saved, or None if nothing was or the sources have changed since."""
        data = self._fresh_data(key)
        return None if data is None else pickle.loads(data)

    def save(self, key: tuple[Any, ...], reduced: Any) -> None:
        """Replace the file as a whole: readers see the old one or the new one. On a full disk nothing is kept."""
        with suppress(OutputError), replacing(self._path(key)) as stream:
            data = dumps(reduced)
            stream.write(self._seal(data) + data)

    def _fresh_data(self, key: tuple[Any, ...]) -> bytes | None:
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        data = content[DIGEST_BYTES:]
        return data if content[:DIGEST_BYTES] == self._seal(data) else None

    def _seal(self, data: bytes) -> bytes:
        """Differs if the file is damaged or was made from other sources."""
        return hashlib.blake2b(self.stamp + data, digest_size=DIGEST_BYTES).digest()

    def _path(self, key: tuple[Any, ...]) -> Path:
        versions = (numba.__version__, sys.version_info[:2], sys.abiflags)
        digest = hashlib.blake2b(repr((key, versions)).encode(), digest_size=8).hexdigest()
        return self.folder / f"{self.name}.{digest}.kernel"


@cache
def sources_digest(folder: Path) -> bytes:
    """Digest of the contents of all modules of a folder: the same in a fresh clone and in an installed wheel."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for path in sorted(folder.glob("*.py")):
        digest.update(f"{path.name}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.digest()
