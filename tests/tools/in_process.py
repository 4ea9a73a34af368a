"""Scripts and interrupts as a user types them, in this process: a new one would import libraries for seconds."""

import io
import logging
import os
import runpy
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    """How a script ended."""

    status: int
    out: str
    err: str


def run_script(script: str, cwd: Path, *words: str) -> Ended:
    """Run a file of the repository with the words of a command line."""
    root, status = logging.getLogger(), 0
    handlers, level = root.handlers[:], root.level  # Hydra replaces them.
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", [script, *words])
        patch.setattr(sys, "path", sys.path[:])
        patch.setenv("COLUMNS", "200")
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as ending:
            status = int(ending.code or 0)
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    return Ended(status, out.getvalue(), err.getvalue())


@contextmanager
def interrupted_at(page: int, folder: Path) -> Iterator[None]:
    """Ctrl-C when a file of the folder is opened, the first one being 1."""
    left, start = page, str(folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if left and event == "open" and str(arguments[0]).startswith(start):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)  # A worker waits until the main thread has heard of it.

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(hook)
    try:
        yield
    finally:
        left = 0  # A hook cannot be removed.
        signal.signal(signal.SIGINT, before)
