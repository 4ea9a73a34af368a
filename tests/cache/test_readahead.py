"""Reading ahead: which bytes of a cache larger than memory the system is told about, and when."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_worker import open_pages, write_pages
from hypothesis import given
from hypothesis import strategies as st
from sameness import assert_same

from ocr import system
from ocr.cache.readahead import MIN_SAMPLE_BYTES, ReadAhead, merged
from ocr.cache.store import ADVISED_BYTES, Store
from ocr.datasets import OCRDataset
from ocr.loader import Loader

PAGES = 12


@pytest.fixture(scope="module", params=["raw", "dense"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OCRDataset:
    folder = tmp_path_factory.mktemp("ahead")
    opened = open_pages(write_pages(folder / "pages", PAGES), folder / "cache", cache_form=request.param)
    opened.fill_cache()
    return opened


class Recorder:
    """Notes what is advised instead of advising it."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, store: Store, start: int, length: int) -> None:
        self.ranges.append((start, length))

    def covers(self, store: Store, index: int) -> bool:
        """Whether every byte of a sample was advised."""
        row = store.row(index)
        assert row is not None
        needed = store.ranges(index, row)
        assert needed is not None
        return all(
            any(start <= offset and offset + length <= start + advised for start, advised in self.ranges)
            for offset, length in needed
        )


def small_memory(root: Path, monkeypatch: pytest.MonkeyPatch, total: int) -> None:
    """A machine with so many bytes of memory, all free."""
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {total >> 10} kB\nMemAvailable: {total >> 10} kB\n")
    monkeypatch.setattr(system, "ROOT", root)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=20), st.integers(0, 20))
def test_merged_ranges_cover_the_same_bytes_in_order_and_never_overlap(ranges, gap):
    found = list(merged(ranges, gap))
    covered = {byte for start, length in found for byte in range(start, start + length)}
    assert covered >= {byte for start, length in ranges for byte in range(start, start + length)}
    assert all(first + length + gap < second for (first, length), (second, _) in pairwise(found))
    if not gap:
        assert len(covered) == len({byte for start, length in ranges for byte in range(start, start + length)})


@pytest.mark.parametrize("ahead_samples", [0, 2, 4, 100])
def test_a_batch_is_announced_before_it_is_made_and_the_rest_no_further_ahead_than_allowed(dataset, ahead_samples):
    store, advised = dataset.cache.store(), Recorder()
    order = np.random.default_rng(0).permutation(PAGES)
    ahead = ReadAhead(dataset.cache.store, order, ahead_samples * MIN_SAMPLE_BYTES, advised)
    for planned in range(2, PAGES + 1, 2):
        ahead(2)
        assert all(advised.covers(store, index) for index in order[:planned].tolist())
        # One sample may be larger than others, so a step may exceed its bytes by one.
        limit = planned + ahead_samples
        assert not any(advised.covers(store, index) for index in order[limit + 2 :].tolist())
    assert len(advised.ranges) == len(set(advised.ranges))


def test_from_the_second_batch_on_as_much_is_announced_as_is_allowed(dataset):
    store, advised = dataset.cache.store(), Recorder()
    size = max(MIN_SAMPLE_BYTES, sum(length for _, length in store.ranges(0, store.row(0))))
    ahead = ReadAhead(dataset.cache.store, range(PAGES), 8 * size, advised)
    ahead(1)
    assert not advised.covers(store, 5)
    ahead(1)
    assert advised.covers(store, 6)


def test_a_step_is_announced_in_the_order_of_the_file(dataset):
    advised = Recorder()
    ReadAhead(dataset.cache.store, range(PAGES - 1, -1, -1), 1 << 40, advised)(1)
    assert advised.ranges == sorted(advised.ranges)


def test_pages_that_are_not_stored_are_not_announced_and_do_not_stop_the_others(tmp_path):
    opened = open_pages(write_pages(tmp_path / "pages", 6), tmp_path / "cache", cache_form="dense")
    opened[4]
    advised = Recorder()
    ReadAhead(opened.cache.store, range(6), 1 << 30, advised)(2)
    assert advised.covers(opened.cache.store(), 4)
    assert len(advised.ranges) == 1


def test_a_cache_that_went_away_ends_the_announcements_without_an_error(dataset):
    advised = Recorder()
    stores = iter([dataset.cache.store(), None, dataset.cache.store()])
    ahead = ReadAhead(lambda: next(stores), range(PAGES), 0, advised)
    for _ in range(3):
        ahead(4)
    store = dataset.cache.store()
    assert [advised.covers(store, index) for index in (0, 8, 11)] == [True, True, True]


def test_only_a_cache_larger_than_half_of_the_memory_is_read_ahead(tmp_path, monkeypatch):
    pages = write_pages(tmp_path / "pages")
    opened = open_pages(pages, tmp_path / "cache", cache_form="dense")
    assert opened.read_ahead(range(8)) is None
    opened.fill_cache()
    assert opened.read_ahead(range(8)) is None
    used = opened.cache.store().used_bytes
    for number, (memory, is_read_ahead) in enumerate([(2 * used, False), (2 * used - 4096, True)]):
        small_memory(tmp_path / f"system{number}", monkeypatch, memory)
        reopened = open_pages(pages, tmp_path / "cache", cache_form="dense")
        assert (reopened.read_ahead(range(8)) is not None) == is_read_ahead


def test_a_page_of_a_large_cache_is_asked_for_whole_when_it_is_read_and_one_of_a_small_cache_is_not(
    tmp_path, monkeypatch
):
    pages = write_pages(tmp_path / "pages")
    opened = open_pages(pages, tmp_path / "cache", cache_form="dense")
    opened.fill_cache()
    advised: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *piece: advised.append(piece))
    before = opened[3]
    assert not advised
    small_memory(tmp_path / "system", monkeypatch, opened.cache.store().used_bytes)
    store = Store(opened.cache.store().folder)
    record = store.read(3, store.row(3))
    assert record is not None
    assert [piece[:2] for piece in advised] == store.ranges(3, store.row(3))
    assert_same(open_pages(pages, tmp_path / "cache", cache_form="dense")[3], before)


def test_a_dataset_without_a_cache_reads_nothing_ahead(tmp_path):
    assert open_pages(write_pages(tmp_path / "pages")).read_ahead(range(8)) is None


class Watched(OCRDataset):
    """A dataset whose announcements are noted, whatever the memory."""

    advised: Recorder

    def read_ahead(self, samples: Any) -> Callable[[int], None] | None:  # type: ignore[override]
        self.announced = samples
        return ReadAhead(self.cache.store, samples, 0, self.advised)


@pytest.mark.parametrize("settings", [{}, {"num_workers": 0}, {"engine": "processes", "num_workers": 1}])
def test_every_engine_announces_what_its_pass_will_read(dataset, settings):
    watched = Watched.__new__(Watched)
    vars(watched).update(vars(dataset), advised=Recorder())
    loader = Loader(watched, 4, shuffle=True, **settings)
    loader.load_state_dict({"epoch": 1, "batches": 1})
    assert len(list(loader)) == 2
    store = watched.cache.store()
    assert len(watched.announced) == 8
    assert {index for index in range(PAGES) if watched.advised.covers(store, index)} >= set(watched.announced.tolist())


def test_long_ranges_are_advised_in_pieces_that_the_system_reads_whole(dataset, monkeypatch):
    pieces = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *piece: pieces.append(piece))
    dataset.cache.store().will_need(1000, 2 * ADVISED_BYTES + 5)
    starts, lengths = [piece[0] for piece in pieces], [piece[1] for piece in pieces]
    assert starts == [1000, 1000 + ADVISED_BYTES, 1000 + 2 * ADVISED_BYTES]
    assert lengths == [ADVISED_BYTES, ADVISED_BYTES, 5]
    assert {piece[2] for piece in pieces} == {os.POSIX_FADV_WILLNEED}


def test_a_file_system_that_takes_no_advice_is_left_alone(dataset, monkeypatch):
    def refuse(*_: int) -> None:
        raise OSError

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    dataset.cache.store().will_need(0, 10)
