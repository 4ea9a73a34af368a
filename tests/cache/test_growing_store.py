"""A dense store grows while it is read: another thread's page is not mistaken for a truncated file."""

from pathlib import Path

import pytest
from cache_worker import open_pages, outcomes, write_pages

from ocr.cache.store import Store

PAGES = 6


class GrowingStore(Store):
    """Whenever the length of its file was asked for, another thread adds a page and maps the file."""

    grows = False

    @property
    def data_bytes(self) -> int:
        length = super().data_bytes
        if self.grows:
            self.grows = False
            self._mapped_to(self._allocate(64) + 64)
            self.grows = True
        return length


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    dataset = open_pages(write_pages(tmp_path / "pages", PAGES), tmp_path / "cache", cache_form="dense")
    dataset.fill_cache()
    return dataset.cache.store().folder


def test_a_page_that_another_thread_adds_is_no_sign_of_a_truncated_file(folder):
    store = GrowingStore(folder)
    store.grows = True
    assert not any(store.is_short() for _ in range(3))


def test_a_page_is_read_while_another_thread_adds_one(folder):
    store = GrowingStore(folder)
    store.grows = True
    for index in range(PAGES):
        record = store.read(index, store.row(index))
        assert record is not None
        assert record.checksum() == store.row(index).checksum


def test_a_page_beyond_the_map_is_read_while_another_thread_adds_one(tmp_path):
    dataset = open_pages(write_pages(tmp_path / "pages", PAGES), tmp_path / "cache", cache_form="dense")
    dataset[0]
    store = GrowingStore(dataset.cache.store().folder)
    dataset[1]
    store.grows = True
    assert store.read(1, store.row(1)) is not None


def test_many_threads_fill_one_cache_without_a_rebuild(tmp_path, caplog):
    dataset = open_pages(write_pages(tmp_path / "pages", 60), tmp_path / "cache", cache_form="dense")
    dataset.fill_cache(threads=8)
    assert not caplog.records
    assert dataset.cache.covered == 1
    reopened = open_pages(tmp_path / "pages", tmp_path / "cache", cache_form="dense")
    for index in range(60):
        reopened[index]
    assert outcomes(reopened) == (60, 0, 0)
