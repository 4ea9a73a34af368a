"""Claims: one process makes a sample, and others make other samples meanwhile."""

import os
import signal
import time
from pathlib import Path

from ocr.cache.store import Store


def hold_a_row(folder: Path, index: int) -> None:
    store = Store(folder)
    with store.claim(index):
        (folder / "held").touch()
        time.sleep(60)


def test_who_makes_one_sample_does_not_hold_up_who_makes_another(full_cache):
    child = os.fork()
    if child == 0:
        try:
            hold_a_row(full_cache, 0)
        finally:
            os._exit(0)
    try:
        until = time.monotonic() + 30
        while not (full_cache / "held").exists():
            assert time.monotonic() < until, "the other process does not hold its row"
            time.sleep(0.01)
        store = Store(full_cache)
        assert not store._claims._lock_row(0)
        assert store._claims._lock_row(1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
