"""Kernels are compiled once per machine, and again when a kernel that they call has changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
PROGRAM = """
import caller
print(caller.two_steps(1), caller.two_steps.stats.cache_hits.total(), caller.two_steps.stats.cache_misses.total())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two modules, one calling the other."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "callee.py").write_text(CALLEE)
    (modules / "caller.py").write_text(CALLER)
    return modules


def start(folder: Path, **environment: str) -> subprocess.Popen[str]:
    given = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | environment
    given["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path])
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=given)


def result_hits_and_misses(process: subprocess.Popen[str]) -> list[int]:
    output, _ = process.communicate()
    assert process.returncode == 0
    return [int(number) for number in output.split()]


def test_a_kernel_is_compiled_again_when_one_that_it_calls_changes_and_else_loaded(folder: Path) -> None:
    assert result_hits_and_misses(start(folder)) == [3, 0, 1]
    assert result_hits_and_misses(start(folder)) == [3, 1, 0]
    os.utime(folder / "caller.py", (0, 0))  # As in a fresh clone: only contents count.
    assert result_hits_and_misses(start(folder)) == [3, 1, 0]
    (folder / "callee.py").write_text(CALLEE.replace("value + 1", "value + 2"))
    assert result_hits_and_misses(start(folder)) == [5, 0, 1]
    assert result_hits_and_misses(start(folder)) == [5, 1, 0]


def test_kernels_of_a_read_only_package_are_kept_in_the_cache_folder_of_the_user(folder: Path, tmp_path: Path) -> None:
    (folder / "__pycache__").write_text("a file here keeps the folder from being made, for root too")
    user = str(tmp_path / "user")
    assert result_hits_and_misses(start(folder, XDG_CACHE_HOME=user)) == [3, 0, 1]
    assert result_hits_and_misses(start(folder, XDG_CACHE_HOME=user)) == [3, 1, 0]


def test_a_kernel_works_if_no_folder_can_be_written_to(folder: Path) -> None:
    (folder / "__pycache__").write_text("")
    assert result_hits_and_misses(start(folder, XDG_CACHE_HOME=str(folder / "callee.py")))[0] == 3


def test_processes_that_compile_at_once_leave_kernels_that_load(folder: Path) -> None:
    both = [start(folder), start(folder)]
    assert [result_hits_and_misses(process)[0] for process in both] == [3, 3]
    assert result_hits_and_misses(start(folder)) == [3, 1, 0]
    kept = sorted(path.name for path in (folder / "__pycache__").iterdir() if "pyc" not in path.suffix)
    assert [name.split(".")[:2] for name in kept] == [["callee", "step"], ["caller", "two_steps"]]


def test_a_damaged_kernel_file_is_compiled_again(folder: Path) -> None:
    result_hits_and_misses(start(folder))
    for path in (folder / "__pycache__").glob("*.kernel"):
        path.write_bytes(path.read_bytes()[:40])
    assert result_hits_and_misses(start(folder)) == [3, 0, 1]
    assert result_hits_and_misses(start(folder)) == [3, 1, 0]
