"""Kernels are compiled once per machine, and again when a kernel that they call has changed."""

import importlib
import multiprocessing
import os
import sys
from pathlib import Path

import pytest

from ocr.geometry.kernels.compiled import sources_digest

CALLEE = """
from ocr.geometry.kernels.compiled import compiled


@compiled()
def step(value):
    return value + 1
"""
CALLER = """
from callee import step
from ocr.geometry.kernels.compiled import compiled


@compiled()
def two_steps(value):
    return step(step(value))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules, one calling the other. Their kernels are kept next to them, where nothing else is told."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "callee.py").write_text(CALLEE)
    (modules / "caller.py").write_text(CALLER)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(modules))
    return modules


def result_hits_and_misses() -> list[int]:
    """What the kernel returns in modules that are imported as a new process imports them."""
    for name in ("caller", "callee"):
        sys.modules.pop(name, None)
    sources_digest.cache_clear()
    importlib.invalidate_caches()
    kernel = importlib.import_module("caller").two_steps
    result = kernel(1)
    return [result, kernel.stats.cache_hits.total(), kernel.stats.cache_misses.total()]


def test_a_kernel_is_compiled_again_when_one_that_it_calls_changes_and_else_loaded(folder: Path) -> None:
    assert result_hits_and_misses() == [3, 0, 1]
    assert result_hits_and_misses() == [3, 1, 0]
    os.utime(folder / "caller.py", (0, 0))  # As in a fresh clone: only contents count.
    assert result_hits_and_misses() == [3, 1, 0]
    (folder / "callee.py").write_text(CALLEE.replace("value + 1", "value + 2"))
    assert result_hits_and_misses() == [5, 0, 1]
    assert result_hits_and_misses() == [5, 1, 0]


def test_kernels_of_a_read_only_package_are_kept_in_the_cache_folder_of_the_user(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "__pycache__").write_text("a file here keeps the folder from being made, for root too")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert result_hits_and_misses() == [3, 0, 1]
    assert result_hits_and_misses() == [3, 1, 0]
    assert list((tmp_path / "user").rglob("caller.two_steps.*.kernel"))


def test_a_kernel_works_if_no_folder_can_be_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "__pycache__").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "callee.py"))
    assert result_hits_and_misses()[0] == 3


def test_processes_that_compile_at_once_leave_kernels_that_load(folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = [pool.apply_async(result_hits_and_misses) for _ in range(2)]
        assert [result.get()[0] for result in results] == [3, 3]
    assert result_hits_and_misses() == [3, 1, 0]
    kept = sorted(path.name for path in (folder / "__pycache__").iterdir())
    assert [name.split(".")[:2] for name in kept] == [["callee", "step"], ["caller", "two_steps"]]


def test_a_damaged_kernel_file_is_compiled_again(folder: Path) -> None:
    result_hits_and_misses()
    for path in (folder / "__pycache__").glob("*.kernel"):
        path.write_bytes(path.read_bytes()[:40])
    assert result_hits_and_misses() == [3, 0, 1]
    assert result_hits_and_misses() == [3, 1, 0]
