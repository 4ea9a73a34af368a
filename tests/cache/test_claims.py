"""Claims: one process makes a sample, and others make other samples meanwhile."""

import os
import signal
import time
from pathlib import Path

import pytest
from cache_worker import items, open_pages, write_pages

from ocr.cache.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The one cache in a folder of caches, full."""
    items(open_pages(write_pages(tmp_path / "pages", 4), tmp_path / "cache"))
    return next((tmp_path / "cache").iterdir())


def hold_a_row(folder: str, index: int) -> None:
    store = Store(Path(folder))
    with store.claim(index):
        Path(folder, "held").touch()
        time.sleep(60)


def test_who_makes_one_sample_does_not_hold_up_who_makes_another(folder):
    child = os.fork()
    if child == 0:
        try:
            hold_a_row(str(folder), 0)
        finally:
            os._exit(0)
    try:
        while not (folder / "held").exists():
            time.sleep(0.01)
        store = Store(folder)
        assert not store._claims._lock_row(0)
        assert store._claims._lock_row(1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
