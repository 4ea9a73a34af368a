"""store: whatever is cut off, flipped, garbled, deleted or refused in the files of a cache, samples are right."""

import errno
import fcntl
import io
import logging
import os
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cache_worker import items, open_pages, outcomes, read_right, worker, write_pages
from rejection import rejects
from sameness import assert_same

from ocr.cache.lock import CacheLock
from ocr.cache.row_format import ROW_BYTES
from ocr.cache.store import Store
from ocr.datasets import DBTransforms
from ocr.errors import ConfigError
from ocr.pipeline.device import Normalize

PAGES = 6


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def pages(base: Path) -> Path:
    return write_pages(base / "pages", PAGES)


@pytest.fixture(scope="module")
def expected(pages: Path) -> list[Any]:
    return items(open_pages(pages))


@pytest.fixture(scope="module")
def full(pages: Path, base: Path, expected: list[Any]) -> Path:
    assert read_right(pages, base / "cache", expected) == (0, PAGES, 0)
    return base / "cache"


@pytest.fixture
def folder(full: Path, tmp_path: Path) -> Path:
    """A copy of the one cache in a folder of caches, full."""
    return next(Path(shutil.copytree(full, tmp_path / "cache")).iterdir())


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ 1 << bit % 8]))


def test_every_single_bit_of_a_row_may_flip(pages, folder, expected):
    used_bits = 8 * 104
    for bit in range(8 * ROW_BYTES):
        flip(folder / "rows", 8 * ROW_BYTES * 3 + bit)
        assert (Store(folder).row(2) is None) == (bit < used_bits)
        if bit % 101:
            flip(folder / "rows", 8 * ROW_BYTES * 3 + bit)
        else:
            assert read_right(pages, folder.parent, expected) == (PAGES - (bit < used_bits), int(bit < used_bits), 0)
            assert read_right(pages, folder.parent, expected) == (PAGES, 0, 0)


def test_a_flipped_bit_of_any_column_costs_its_own_sample_only(pages, folder, expected):
    store = Store(folder)
    places = [(name, number % (PAGES - 1)) for number, name in enumerate(store.columns)]
    for name, index in places:
        start, slot = store.columns[name]
        used = 100 if name == "metadata" else slot
        flip(folder / "data", 8 * (start + index * slot) + random.Random(index).randrange(8 * used))
        assert read_right(pages, folder.parent, expected) == (PAGES - 1, 0, 1)
        assert read_right(pages, folder.parent, expected) == (PAGES, 0, 0)


def test_a_flipped_bit_behind_the_columns_costs_its_own_sample_only(pages, folder, expected):
    for seed in range(4):
        row = Store(folder).row(PAGES - 1)
        assert row is not None
        assert row.offset >= Store(folder).layout.end()
        flip(folder / "data", 8 * row.offset + random.Random(seed).randrange(8 * (90_000 + row.metadata_bytes)))
        assert read_right(pages, folder.parent, expected) == (PAGES - 1, 0, 1)
        assert read_right(pages, folder.parent, expected) == (PAGES, 0, 0)


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_of_the_description_is_survived_by_all_samples(pages, folder, expected, caplog, every):
    caplog.set_level(logging.CRITICAL, "ocr")  # A warning that is kept keeps its dataset, and that its open files.
    sound = (folder / "about.json").read_bytes()
    begin, end = sound.index(b"{", 1), sound.index(b"}")
    bits = [*range(8 * begin, 8 * end, 5 * every), *range(0, 8 * len(sound), 49 * every)]
    for bit in bits:
        flip(folder / "about.json", bit)
        dataset = open_pages(pages, folder.parent)
        for _ in range(2):
            assert_same(items(dataset), expected)
        assert outcomes(dataset) == (PAGES, 0, 0)
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        (folder / "about.json").write_bytes(sound)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def cut_off_a_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def garble(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(path.stat().st_size))


def garble_the_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + random.Random(0).randbytes(len(data) - len(data) // 2))


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"more")


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", ["about.json", "rows", "data"])
@pytest.mark.parametrize(
    "damage",
    [empty, cut_off_a_byte, cut_in_half, garble, garble_the_half, grow, Path.unlink, make_a_folder],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_file_is_noticed_and_made_anew(pages, folder, expected, name, damage):
    damage(folder / name)
    for _ in range(2):
        dataset = open_pages(pages, folder.parent)
        for _ in range(2):
            assert_same(items(dataset), expected)
    if damage is not make_a_folder:
        assert outcomes(dataset) == (PAGES, 0, 0)
        assert len(list(folder.parent.iterdir())) == 1


def test_a_file_without_the_places_behind_its_slots_is_made_anew(pages, folder, expected):
    os.truncate(folder / "data", Store(folder).layout.end())
    assert read_right(pages, folder.parent, expected) == (0, PAGES, 0)
    assert read_right(pages, folder.parent, expected) == (PAGES, 0, 0)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("about.json", errno.EMFILE),
        ("about.json", errno.EACCES),
        ("rows", errno.EACCES),
        ("rows", errno.EIO),
        ("data", errno.EIO),
        ("data", errno.EMFILE),
    ],
)
def test_a_cache_that_cannot_be_opened_now_is_left_for_later(pages, folder, expected, monkeypatch, caplog, code, name):
    def refuse(function: Any) -> Any:
        def opened(path: Any, *arguments: Any, **settings: Any) -> Any:
            if str(path).endswith(f"/{name}"):
                raise OSError(code, os.strerror(code), str(path))
            return function(path, *arguments, **settings)

        return opened

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse(os.open))
        patch.setattr(io, "open", refuse(io.open))
        assert read_right(pages, folder.parent, expected) == (0, PAGES, 0)
        assert os.strerror(code) in caplog.text
    assert read_right(pages, folder.parent, expected) == (PAGES, 0, 0)


def fail_to_write(monkeypatch: pytest.MonkeyPatch, code: int, after_bytes: int) -> None:
    """A disk that takes so many bytes and then no more."""
    write, left = os.pwrite, after_bytes

    def write_what_fits(descriptor: int, data: Any, offset: int) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(code, os.strerror(code))
        written = write(descriptor, data[:left], offset)
        left -= written
        return written

    monkeypatch.setattr(os, "pwrite", write_what_fits)


@pytest.mark.parametrize(
    ("code", "after_bytes"),
    [
        (errno.ENOSPC, 0),
        (errno.EROFS, 0),
        (errno.EIO, 50_000),
        (errno.EDQUOT, 200_000),
        (errno.ENOSPC, 200_000),
        (errno.EIO, 270_600),
    ],
)
def test_a_disk_that_takes_no_more_costs_the_rest_of_the_cache_only(
    pages, tmp_path, expected, monkeypatch, caplog, code, after_bytes
):
    with monkeypatch.context() as patch:
        fail_to_write(patch, code, after_bytes)
        dataset = open_pages(pages, tmp_path / "cache")
        for epoch in range(2):
            assert_same(items(dataset), expected)
            dataset.set_epoch(epoch)
        assert len(caplog.records) == 1
        assert os.strerror(code) in caplog.text
        read_right(pages, tmp_path / "cache", expected)
    hits, misses, invalid = read_right(pages, tmp_path / "cache", expected)
    assert hits == after_bytes // 90_500
    assert (hits + misses, invalid) == (PAGES, 0)
    assert read_right(pages, tmp_path / "cache", expected) == (PAGES, 0, 0)


def test_a_full_disk_does_not_keep_samples_from_being_proven(pages, folder, expected, monkeypatch):
    hour_later = time.time_ns() + 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: hour_later)  # So that the files did not change just now.
    fail_to_write(monkeypatch, errno.ENOSPC, 0)
    dataset = open_pages(pages, folder.parent)
    assert_same(items(dataset), expected)
    assert outcomes(dataset) == (PAGES, 0, 0)
    dataset.set_epoch(1)


def test_two_datasets_of_one_process_fill_the_same_cache(tmp_path):
    folder = write_pages(tmp_path / "pages", 40)
    # Without a letterbox most pages lie behind the slots, where both ask for room at the same time.
    transform = DBTransforms([Normalize()])
    expected = items(open_pages(folder, transform=transform))
    for attempt in range(3):
        cache = tmp_path / f"cache {attempt}"
        both = [open_pages(folder, cache, transform) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda dataset: dataset.fill_cache(threads=4), both))
        for dataset in both:
            assert_same(items(dataset), expected)
        assert read_right(folder, cache, expected, transform=transform) == (40, 0, 0)


def fork_while_locked(folder: str) -> None:
    lock = CacheLock(Path(folder), "name")
    with lock:
        waiting = os.open(lock.path, os.O_RDWR)
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_process_forked_from_one_that_holds_the_lock_does_not_keep_it(tmp_path):
    worker().call(fork_while_locked, folder=tmp_path)


def test_over_budget_the_cache_keeps_what_it_has_and_tells_the_share(pages, tmp_path, expected, caplog):
    dataset = open_pages(pages, tmp_path / "cache", cache_max_bytes="400kB")
    for _ in range(2):
        assert_same(items(dataset), expected)
    kept, missing, invalid = outcomes(dataset)
    assert 0 < kept < PAGES
    assert (missing, invalid) == (PAGES - kept, 0)
    assert dataset.cache is not None
    assert dataset.cache.covered == kept / PAGES
    (record,) = caplog.records
    assert f" {kept / PAGES:.0%} " in record.getMessage()
    assert "cache.max_bytes=400000" in record.getMessage()
    assert read_right(pages, tmp_path / "cache", cache_max_bytes=400_000) == (kept, PAGES - kept, 0)
    assert read_right(pages, tmp_path / "cache") == (kept, PAGES - kept, 0)
    assert read_right(pages, tmp_path / "cache", cache_max_bytes=0) == (PAGES, 0, 0)


@pytest.mark.parametrize("value", ["lots", "-1", "1.2.3GB", "", True, None])
def test_a_budget_that_is_none_is_refused(pages, tmp_path, value):
    with rejects(ConfigError, setting="cache.max_bytes", value=value):
        open_pages(pages, tmp_path / "cache", cache_max_bytes=value)


def test_rows_are_found_and_caches_filled_piece_by_piece(pages, folder, expected, monkeypatch):
    store = Store(folder)
    for index in (0, 4):
        store.forget(index)
    monkeypatch.setattr("ocr.cache.store._ROWS_AT_ONCE", 2)
    monkeypatch.setattr("ocr.cache.cache.FILLED_AT_ONCE", 4)
    assert store.ready().tolist() == [1, 2, 3, 5]
    assert open_pages(pages, cache="auto", cache_folder=folder.parent).fill_cache() == {"hit": 4, "miss": 2}
    assert store.ready().tolist() == list(range(PAGES))
