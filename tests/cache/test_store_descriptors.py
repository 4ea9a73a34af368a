"""A store closes what it has opened."""

import errno
import os
from pathlib import Path

import pytest
from cache_worker import items, open_pages, write_pages

from ocr.cache.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The one cache in a folder of caches, full."""
    items(open_pages(write_pages(tmp_path / "pages", 4), tmp_path / "cache"))
    return next((tmp_path / "cache").iterdir())


def test_a_store_that_is_closed_leaves_no_descriptor(folder):
    store = Store(folder)
    opened = len(os.listdir("/proc/self/fd"))
    store.close()
    # Rows and data; memory maps have one of their own.
    assert len(os.listdir("/proc/self/fd")) == opened - 2
    store.close()


def test_a_store_that_can_only_be_read_leaves_no_descriptor_of_the_attempt_to_write(folder, monkeypatch):
    real = os.open

    def refuse(path, flags, *mode):
        if Path(path).name == "data" and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "read-only", str(path))
        return real(path, flags, *mode)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "open", refuse)
    store = Store(folder)
    assert store.row(0) is not None
    del store
    assert len(os.listdir("/proc/self/fd")) == before
