"""proof: what a cached sample was made of is noted before its file is read, so that no edit meanwhile is missed."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cache_worker
import pytest
from cache_worker import items, open_pages, read_annotation, repaint, write_annotation, write_pages
from sameness import assert_same

from ocr.cache.cache import Cache
from ocr.cache.store import Store
from ocr.pipeline.cut import Cut
from ocr.pipeline.sample import Sample
from ocr.pipeline.signature import UNKNOWN, Signature
from ocr.pipeline.source import Source
from ocr.pipeline.stage import FixedStage

PAGE = 1
HOUR = 3600 * 10**9


@pytest.fixture
def pages(tmp_path: Path, each_form: str) -> Path:
    return write_pages(tmp_path / "pages", 3)


@pytest.fixture
def later(monkeypatch) -> Callable[[int], None]:
    """Moves the clock, so that files are as old as a test needs them."""
    now = time.time_ns

    def move(nanoseconds: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: now() + nanoseconds)

    return move


def paint_over(pages: Path) -> None:
    """Another file of the same size and time with other pixels."""
    page = pages / "images" / "01.bmp"
    (page.with_name("new")).write_bytes(page.read_bytes())
    repaint(page.with_name("new"))
    os.replace(page.with_name("new"), page)


class Edited:
    """A source in which something happens when a page was read."""

    def __init__(self, source: Source, after_reading: Callable[[], None]) -> None:
        self._source, self._after_reading = source, after_reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> Sample:
        page = self._source.read(index)
        self._after_reading()
        return page


def open_cache(pages: Path, after_reading: Callable[[], None], *stages: FixedStage) -> Cache:
    dataset = open_pages(pages)
    make = replace(dataset.fixed_part, stages=(*dataset.fixed_part.stages, *stages))
    source: Any = Edited(dataset.source, after_reading)
    return Cache(source, make.parts, make, Cut(page=True, dense=cache_worker.form == "dense"), pages.parent / "cache")


def nothing() -> None: ...


def row_signature(cache: Cache) -> Signature | None:
    store = cache.store()
    row = Store(store.folder).row(PAGE) if store is not None else None
    return row.signature if row is not None else None


def edit_words(pages: Path) -> None:
    annotation = read_annotation(pages)
    annotation["01.bmp"]["words"]["0001"]["points"] = [[2, 2], [30, 2], [30, 30], [2, 30]]
    write_annotation(pages, annotation)


def test_a_page_edited_right_after_it_was_read_is_made_again(pages, later):
    later(HOUR)
    edits = [lambda: paint_over(pages)]
    cache = open_cache(pages, lambda: edits.pop()() if edits else None)
    before = cache.sample(PAGE).unpacked()
    assert not edits
    for again in (cache, open_cache(pages, nothing)):
        found = again.sample(PAGE).unpacked()
        assert_same(found.image, open_cache(pages, nothing).make(open_pages(pages).source.read(PAGE)).image)
        assert not (found.image == before.image).all()


@dataclass(frozen=True)
class Slow(FixedStage):
    """Takes an hour."""

    def __call__(self, sample: Sample) -> Sample:
        now = time.time_ns()
        time.time_ns = lambda: now + HOUR
        return sample


def test_a_file_that_changed_just_before_it_was_read_proves_nothing_however_long_its_page_took(pages, later):
    later(0)  # The fixture sets the clock right again.
    cache = open_cache(pages, nothing, Slow())
    cache.sample(PAGE)
    assert row_signature(cache) == UNKNOWN
    assert open_cache(pages, nothing, Slow()).sample(PAGE).cached == "hit"


@pytest.mark.parametrize("seconds", [-(10**9), 0])
def test_a_file_system_without_times_is_compared_by_content(later, seconds):
    times = Signature(10, seconds, 0, 5)
    later(0)
    assert times.settled() == UNKNOWN


def test_words_that_change_while_a_page_is_made_are_not_stored_with_the_old_page(pages, later):
    later(HOUR)
    dataset = open_pages(pages, pages.parent / "kept")
    cache = dataset.cache
    assert cache is not None
    edits = [lambda: (edit_words(pages), cache.look(cache.source.look()))]
    source = cache.source
    cache.source = Edited(source, lambda: edits.pop()() if edits else None)  # type: ignore[assignment]
    dataset[PAGE]
    assert not edits
    cache.source = source
    assert_same(items(dataset), items(open_pages(pages)))
    assert_same(items(open_pages(pages, pages.parent / "kept")), items(open_pages(pages)))
