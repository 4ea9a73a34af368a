"""A folder for the caches, maps and shards of a measurement, removed afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ocr.system import has_ended

PREFIX = "bench-"


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder that is removed at the end, also after an error; folders of killed commands are removed at the start."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{PREFIX}*-*"):
        owner = left.name.removeprefix(PREFIX).split("-")[0]
        if has_ended(owner):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
