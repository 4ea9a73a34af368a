"""A store closes what it has opened."""

import errno
import os
from pathlib import Path

from ocr.cache.store import Store


def test_a_store_that_is_closed_leaves_no_descriptor(full_cache):
    store = Store(full_cache)
    opened = len(os.listdir("/proc/self/fd"))
    store.close()
    # Rows and data; memory maps have one of their own.
    assert len(os.listdir("/proc/self/fd")) == opened - 2
    store.close()


def test_a_store_that_can_only_be_read_leaves_no_descriptor_of_the_attempt_to_write(full_cache, monkeypatch):
    real = os.open

    def refuse(path, flags, *mode):
        if Path(path).name == "data" and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "read-only", str(path))
        return real(path, flags, *mode)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "open", refuse)
    store = Store(full_cache)
    assert store.row(0) is not None
    del store
    assert len(os.listdir("/proc/self/fd")) == before
