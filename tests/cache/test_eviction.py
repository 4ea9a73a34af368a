"""budget: all caches together are bounded; older and unused ones go first, never one that is open."""

import gc
import json
import os
import time
from pathlib import Path

import pytest
from cache_worker import fixed, items, open_pages, outcomes, read_right, write_pages
from rejection import rejects
from sameness import assert_same
from typer.testing import CliRunner

from ocr.cache.eviction import is_open, removal_order, superseded
from ocr.cache.folder import disk_bytes, list_stores
from ocr.cache.store import Store
from ocr.cli import app
from ocr.errors import ConfigError
from ocr.pipeline.fingerprint import digest

PAGES = 8
DAY = 86400


@pytest.fixture
def pages(tmp_path: Path, each_form: str) -> Path:
    return write_pages(tmp_path / "pages", PAGES)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fill(pages: Path, root: Path, size: int, days_ago: float = 0.0, **settings: object) -> Path:
    """A cache of pages of this size, used last so many days ago."""
    dataset = open_pages(pages, root, fixed(size=size), **settings)
    items(dataset)
    assert dataset.cache is not None
    store = dataset.cache.store()
    assert store is not None
    folder = store.folder
    os.utime(folder / "about.json", (time.time() - days_ago * DAY,) * 2)
    del dataset, store
    gc.collect()  # A dataset has a cycle of references in it, and is open until that is found.
    return folder


def change_code(folder: Path) -> Path:
    """The same cache, as it would be named for other code of its stages."""
    return folder.rename(folder.with_name(f"{digest(folder.name)[:16]}-{folder.name.split('-', 1)[1]}"))


def test_a_new_cache_makes_room_by_removing_the_least_recently_used(pages, root, caplog):
    folders = {size: fill(pages, root, size, days) for size, days in ((64, 1), (72, 3), (80, 2))}
    taken = sum(map(disk_bytes, folders.values()))
    new = fill(pages, root, 88, cache_max_total_bytes=taken)
    assert set(list_stores(root)) == {new, folders[64]}
    (record,) = caplog.records
    assert f"cache.max_total_bytes={taken}" in record.getMessage()
    assert sum(map(disk_bytes, list_stores(root))) <= taken
    assert read_right(pages, root, transform=fixed(size=88)) == (PAGES, 0, 0)


def test_nothing_is_removed_while_all_caches_fit(pages, root, caplog):
    for size in (64, 72, 80):
        fill(pages, root, size, days_ago=size, cache_max_total_bytes="1GB")
    fill(pages, root, 88)
    assert len(list_stores(root)) == 4
    assert not caplog.records


def test_caches_of_older_code_go_before_the_least_recently_used(pages, root):
    older_code = change_code(fill(pages, root, 64, days_ago=1))
    same_stages, unused = fill(pages, root, 64), fill(pages, root, 72, days_ago=9)
    assert superseded(list_stores(root)) == {older_code}
    assert removal_order(list_stores(root)) == [older_code, unused, same_stages]
    taken = sum(map(disk_bytes, list_stores(root)))
    fill(pages, root, 48, cache_max_total_bytes=taken)
    assert not older_code.exists()
    assert unused.exists()


def test_a_cache_that_is_open_is_never_removed_and_the_new_one_keeps_to_what_is_left(pages, root, caplog):
    first = open_pages(pages, root, fixed(size=64))
    expected = items(first)
    (folder,) = list_stores(root)
    assert is_open(folder)
    os.utime(folder / "about.json", (1, 1))
    total = disk_bytes(folder) * 3 // 2
    second = open_pages(pages, root, fixed(size=72), cache_max_total_bytes=total)
    assert_same(items(second), items(open_pages(pages, transform=fixed(size=72))))
    assert folder.exists()
    assert second.cache is not None
    assert 0 < second.cache.covered < 1
    assert f"cache.max_total_bytes={total}" in caplog.text
    first.set_epoch(1)
    assert_same(items(first), expected)
    assert outcomes(first) == (PAGES, 0, 0)


def test_a_cache_is_open_as_long_as_it_is_mapped(pages, root):
    folder = fill(pages, root, 64)
    assert not is_open(folder)
    store = Store(folder)
    assert is_open(folder)
    del store
    assert not is_open(folder)
    assert not is_open(root / "none")


def test_the_list_tells_which_caches_are_in_use_and_which_go_first(pages, root):
    older_code = change_code(fill(pages, root, 64, days_ago=1))
    dataset = open_pages(pages, root, fixed(size=64))
    items(dataset)
    (in_use,) = set(list_stores(root)) - {older_code}
    known = json.loads(CliRunner().invoke(app, ["cache", "stats", "--json", "--folder", str(root)]).output)
    assert {cache["folder"]: (cache["in_use"], cache["superseded"]) for cache in known} == {
        str(older_code): (False, True),
        str(in_use): (True, False),
    }


@pytest.mark.parametrize("value", ["lots", "-1", True, None])
def test_a_total_that_is_none_is_refused(pages, root, value):
    with rejects(ConfigError, setting="cache.max_total_bytes", value=value):
        open_pages(pages, root, cache_max_total_bytes=value)
