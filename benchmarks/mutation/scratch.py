"""A copy of the repository in which mutants live, and the process that runs tests in it."""

from __future__ import annotations

import ast
import compileall
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from ocr.errors import ConfigError
from ocr.geometry.kernels.compiled import DIGEST_BYTES, KernelFiles, sources_digest
from ocr.system import usable_cores

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS = "ocr/geometry/kernels"
LIBRARIES = (
    *("albumentations", "cv2", "hydra", "hypothesis", "lightning", "matplotlib", "numba", "numpy", "PIL.Image"),
    *("pyclipper", "rich.progress", "shapely", "simplejpeg", "timm", "torch", "torchmetrics", "typer", "xxhash"),
)
"""Imported once for all mutants. None of them imports `ocr`, so every fork reads its modules anew."""
MIN_WAIT_SECONDS = 300
"""Tests that wait for each other for longer never end; times the load, as a busy machine gives little of its time."""
COPIED = (
    "benchmarks",
    "configs",
    "docs",
    "examples",
    "ocr",
    "runners",
    "scripts",
    "tests",
    "pyproject.toml",
    "README.md",
)


class Scratch:
    """The copy, made anew from the repository, with machine code of its own for the kernels."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder, self.root = folder.resolve(), root
        self.tree, self.kernels, self.ready = (self.folder / name for name in ("tree", "kernels", "ready_kernels"))
        shutil.rmtree(self.tree, ignore_errors=True)
        self.tree.mkdir(parents=True)
        for source in filter(Path.exists, (root / name for name in COPIED)):
            copy = shutil.copy2 if source.is_file() else copy_folder
            copy(source, self.tree / source.name)
        # Bytecode of the modules as they are, and none of a mutant: its file may have the same size and second.
        compileall.compile_dir(self.tree / "ocr", quiet=2)
        self.environment = os.environ | {
            "PYTHONPATH": str(self.tree),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(self.kernels),
        }

    def compile_kernels(self) -> None:
        """Once for all mutants that leave the kernels alone; what a run that was stopped has left is not used."""
        self._put_back()
        command = [sys.executable, "-c", "from ocr.geometry.kernels.warm_up import warm_up; warm_up()"]
        subprocess.run(command, cwd=self.tree, env=self.environment, check=True)
        self.remember_kernels()

    def remember_kernels(self) -> None:
        """What is compiled now is what `_put_back` gives back; tests may have compiled more than `warm_up`."""
        shutil.rmtree(self.ready, ignore_errors=True)
        shutil.copytree(self.kernels, self.ready)

    def _put_back(self) -> None:
        if self.ready.is_dir():
            shutil.rmtree(self.kernels, ignore_errors=True)
            shutil.copytree(self.ready, self.kernels)

    @contextmanager
    def changed(self, name: str, content: bytes) -> Iterator[None]:
        """A file of the copy with another content, as long as the context is open."""
        path = self.tree / name
        original, stat = path.read_bytes(), path.stat()
        path.write_bytes(content)
        try:
            if name.startswith(f"{KERNELS}/"):
                self._keep_unchanged_kernels(Path(name).stem)
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if name.startswith(f"{KERNELS}/"):
                self._put_back()

    def _keep_unchanged_kernels(self, module: str) -> None:
        """Machine code is stale once any file of the folder changes; what cannot call the changed file is sealed anew.

        Compiling all of it takes half a minute, compiling what is changed a few seconds.
        """
        changed = {module} | importers(self.tree / KERNELS, module)
        stamp = sources_digest.__wrapped__(self.tree / KERNELS)
        for path in self.kernels.rglob("*.kernel"):
            if path.name.partition(".")[0] in changed:
                path.unlink()
                continue
            data = path.read_bytes()[DIGEST_BYTES:]
            path.write_bytes(KernelFiles(path.parent, "", stamp)._seal(data) + data)


def copy_folder(source: Path, target: Path) -> None:
    """Links stay links; without bytecode, which is of other paths."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))


def importers(folder: Path, module: str) -> set[str]:
    """Modules of a folder that import another one of it, directly or not.

    >>> sorted(importers(ROOT / KERNELS, "offset"))
    ['boxes', 'maps', 'warm_up']
    """
    imports = {path.stem: _imported(path) for path in folder.glob("*.py")}
    found: set[str] = set()
    while more := {name for name, used in imports.items() if used & (found | {module})} - found:
        found |= more
    return found


def _imported(path: Path) -> set[str]:
    """Last names of all that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module.rpartition(".")[2], *(alias.name for alias in node.names)}
    return found


class TestRunner:
    """Asks the worker, which has the libraries already, to run tests."""

    __test__ = False

    def __init__(self, scratch: Scratch, libraries: Sequence[str] = LIBRARIES) -> None:
        self.scratch, self.log = scratch, scratch.folder / "pytest.txt"
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), *libraries]
        self.process = subprocess.Popen(
            command, cwd=scratch.tree, env=scratch.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def run(self, arguments: list[str], limit_cpu_seconds: float) -> dict[str, Any]:
        """What pytest finds: `status`, `failed` with the first line of each error, CPU `seconds` of each test."""
        work = self.scratch.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        given = ["-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=short", f"--basetemp={work / 'pages'}"]
        given += [f"--rootdir={self.scratch.tree}"]
        request = {
            "arguments": [*given, *arguments],
            "limit_cpu_seconds": math.ceil(limit_cpu_seconds),
            "limit_seconds": max(MIN_WAIT_SECONDS, 3 * limit_cpu_seconds)
            * max(1.0, os.getloadavg()[0] / usable_cores()),
            "answer": str(work / "answer.json"),
            "log": str(self.log),
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        told: dict[str, Any] = json.loads(self._answer())
        return told

    def _answer(self) -> str:
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return line
        raise ConfigError(f"the worker of the tests has ended with status {self.process.wait()}")

    def close(self) -> None:
        """End the worker."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class IdleRunners:
    """Calls of functions that take a runner first, as many at once as there are runners."""

    def __init__(self, runners: Sequence[TestRunner]) -> None:
        self._idle: SimpleQueue[TestRunner] = SimpleQueue()
        for runner in runners:
            self._idle.put(runner)
        self._threads = ThreadPoolExecutor(len(runners))

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin `call(runner, *arguments)` as soon as there is one."""
        return self._threads.submit(self._call, call, *arguments)

    def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        runner = self._idle.get()
        try:
            return call(runner, *arguments)
        finally:
            self._idle.put(runner)

    def __enter__(self) -> IdleRunners:
        return self

    def __exit__(self, *_: object) -> None:
        """What has not begun is left out: the caller has all results, or an error."""
        self._threads.shutdown(cancel_futures=True)
