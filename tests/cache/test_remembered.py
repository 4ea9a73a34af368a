"""What a process remembers of samples that it read before: only as long as they are the same, and never for ever."""

import gc
import os

import numpy as np
import pytest
from cache_worker import open_pages, repaint, write_pages
from sameness import assert_same

from ocr.cache import cache as cache_module

pytestmark = pytest.mark.usefixtures("each_form")


@pytest.fixture
def pages(tmp_path):
    return write_pages(tmp_path / "pages")


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_a_page_that_is_read_again_is_not_parsed_again(pages, tmp_path):
    dataset = open_pages(pages, tmp_path / "cache")
    dataset.fill_cache()
    first, again = dataset.cache.sample(1), dataset.cache.sample(1)
    assert first is again
    assert first.cached == "hit"


def test_a_page_that_is_edited_between_epochs_is_not_remembered(pages, tmp_path):
    dataset = open_pages(pages, tmp_path / "cache")
    dataset.fill_cache()
    before = dataset.cache.sample(1)
    repaint(pages / "images" / "01.bmp")
    dataset.set_epoch(1)
    after = dataset.cache.sample(1)
    assert after.cached == "invalid"
    assert not np.array_equal(before.unpacked().image, after.unpacked().image)
    assert_same(dataset[1], open_pages(pages)[1])


def test_a_file_that_grows_is_held_open_once(pages, tmp_path):
    dataset = open_pages(pages, tmp_path / "cache")
    dataset.cache.sample(0)
    gc.collect()
    before = open_files()
    for index in range(len(dataset)):
        dataset.cache.sample(index)  # Stored,
        dataset.cache.sample(index)  # mapped, and remembered.
    assert open_files() <= before + 1


def test_only_so_many_samples_are_remembered(pages, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "MAX_REMEMBERED", 2)
    dataset = open_pages(pages, tmp_path / "cache")
    dataset.fill_cache()
    for _ in range(2):  # The last page made the file longer, which is then mapped again.
        samples = [dataset.cache.sample(index) for index in range(len(dataset))]
    assert len(dataset.cache._remembered) == 2
    assert [sample.filename for sample in samples] == list(dataset.source.names)


def test_a_cache_that_goes_is_forgotten(pages, tmp_path):
    dataset = open_pages(pages, tmp_path / "cache")
    gc.collect()
    before = open_files()
    dataset.fill_cache()
    dataset.cache.sample(1)
    handle = dataset.cache.handle
    assert handle.discard(handle.store)
    handle.stop("gave way")
    assert dataset.cache.sample(1).cached == "miss"
    gc.collect()
    assert open_files() == before
