"""store: a file that is truncated while it is mapped costs its pages once, and never the process."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cache_worker import fixed, items, open_pages, outcomes, read_right, worker, write_pages
from sameness import assert_same

from ocr.cache.folder import list_stores
from ocr.cache.store import Store
from ocr.cache.store_folder import TruncatedStoreError
from ocr.datasets import DBTransforms
from ocr.loader.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

pytestmark = pytest.mark.usefixtures("each_form")

PAGES = 8


def data_of(cache: str) -> Path:
    (folder,) = Path(cache).iterdir()
    return folder / "data"


def read_cut_file(folder: str, cache: str, length: float, batches: bool) -> list[Any]:
    """Outcomes of the epoch after the file is cut, and of the next one."""
    expected, told = items(open_pages(folder)), []
    dataset, other = (open_pages(folder, cache) for _ in range(2))
    for opened in (dataset, other):
        assert_same(items(opened), expected)
    loader = Loader(dataset, batch_size=4, num_workers=0)
    os.truncate(data_of(cache), int(length * data_of(cache).stat().st_size))
    for epoch in (1, 2):
        dataset.set_epoch(epoch)
        if batches:
            images = [image for batch in loader for image in batch["images"]]
            assert_same(images, [item["image"] for item in expected])
        else:
            assert_same(items(dataset), expected)
        told.append(outcomes(dataset))
    other.set_epoch(1)
    assert_same(items(other), expected)
    return [*told, outcomes(other)]


@pytest.mark.parametrize(
    ("length", "batches"), [(0.0, False), (0.3, True), (0.9, False)], ids=["no byte", "a third", "most"]
)
def test_pages_of_a_file_that_is_cut_while_mapped_are_made_again_and_counted(tmp_path, length, batches):
    pages, cache = write_pages(tmp_path / "pages", PAGES), tmp_path / "cache"
    read_right(pages, cache)
    answer = worker().call(read_cut_file, folder=pages, cache=cache, length=length, batches=batches)
    # Who had the cut file open too takes the pages from the new one.
    assert answer["result"] == [[0, 0, PAGES], [PAGES, 0, 0], [PAGES, 0, 0]]
    assert all(str(cache) in warning for warning in answer["warnings"])
    assert 1 <= len(answer["warnings"]) <= 2
    assert read_right(pages, cache) == (PAGES, 0, 0)


def write_to_cut_file(folder: str, cache: str) -> list[Any]:
    dataset = open_pages(folder, cache)
    expected = items(open_pages(folder))
    assert_same([dataset[index] for index in range(4)], expected[:4])
    assert dataset.cache is not None
    store = dataset.cache.store()
    assert store is not None
    os.truncate(data_of(cache), 0)
    # The last page would make the file as long as it was, with zeros where proven pages were.
    assert_same([dataset[index] for index in (7, *range(7))], [expected[index] for index in (7, *range(7))])
    assert os.fstat(store._data).st_size == 0
    return list(outcomes(dataset))


def test_nothing_is_written_to_a_file_that_was_cut(tmp_path):
    pages, cache = write_pages(tmp_path / "pages", PAGES), tmp_path / "cache"
    assert worker().call(write_to_cut_file, folder=pages, cache=cache)["result"] == [0, 4, 4]
    assert read_right(pages, cache) == (PAGES, 0, 0)


@pytest.mark.parametrize("length", [0, 10, 128 * 3 + 5])
def test_rows_that_are_cut_while_open_are_made_again(tmp_path, length):
    pages, cache = write_pages(tmp_path / "pages", PAGES), tmp_path / "cache"
    expected = items(open_pages(pages))
    read_right(pages, cache, expected)
    dataset = open_pages(pages, cache)
    os.truncate(data_of(str(cache)).with_name("rows"), length)
    assert_same(items(dataset), expected)
    assert dataset.cache is not None
    assert dataset.cache.covered == 1.0
    dataset.set_epoch(1)
    assert read_right(pages, cache, expected) == (PAGES, 0, 0)


def test_whatever_stands_in_the_files_while_a_page_is_written_a_row_vouches_for_whole_data_only(tmp_path, monkeypatch):
    """Data before its row: a reader at any moment of the writing finds no page, or the right one."""
    pages, cache = write_pages(tmp_path / "pages", PAGES), tmp_path / "cache"
    write, looks = os.pwrite, 0

    def look() -> None:
        nonlocal looks
        for folder in list_stores(cache):
            store = Store(folder)
            for index in store.ready().tolist():
                row = store.row(index)
                assert row is not None
                record = store.read(index, row)
                assert record is not None
                assert record.checksum() == row.checksum
                looks += 1

    def look_and_write(descriptor: int, data: Any, offset: int) -> int:
        look()
        written = write(descriptor, data, offset)
        look()
        return written

    monkeypatch.setattr(os, "pwrite", look_and_write)
    for size in (64, 72):
        dataset = open_pages(pages, cache, fixed(size=size))
        assert_same(items(dataset), items(open_pages(pages, transform=fixed(size=size))))
        assert outcomes(dataset) == (0, PAGES, 0)
    assert looks > 100


def use_cut_store(cache: str) -> None:
    store = Store(data_of(cache).parent)
    row = store.row(1)
    assert row is not None
    record = store.read(1, row)
    assert record is not None
    copy = record._replace(arrays={name: array.copy() for name, array in record.arrays.items()})
    os.truncate(data_of(cache), 0)
    assert store.read(1, row) is None
    assert store.windows(0, 2) is None
    with pytest.raises(TruncatedStoreError):
        store.write(1, copy, row.content, row.annotation, row.signature)
    assert store.data_bytes == 0


def test_a_store_gives_no_view_of_a_cut_file_and_does_not_write_to_it(tmp_path):
    pages, cache = write_pages(tmp_path / "pages", PAGES), tmp_path / "cache"
    read_right(pages, cache)
    worker().call(use_cut_store, cache=cache)


@dataclass(frozen=True)
class Truncating(FixedStage):
    """Leaves the page as it is, and truncates a file while the page is made, if there is a mark."""

    mark: str

    def __call__(self, sample: Sample) -> Sample:
        if Path(self.mark).exists():
            os.truncate(Path(self.mark).read_text(), 0)
            Path(self.mark).unlink()
        return sample


def test_a_file_that_is_cut_while_a_page_is_made_is_replaced(tmp_path, caplog):
    pages, cache, mark = write_pages(tmp_path / "pages", PAGES), tmp_path / "cache", tmp_path / "mark"
    transform = fixed(Truncating(str(mark)))
    expected = items(open_pages(pages, transform=transform))
    dataset = open_pages(pages, cache, transform)
    dataset[0]
    mark.write_text(str(data_of(str(cache))))
    for index in [*range(1, PAGES), 0] * 3:  # None of them is held while the file is cut.
        assert_same(dataset[index], expected[index])
    assert not mark.exists()
    assert str(cache) in caplog.text
    assert outcomes(dataset) == (PAGES, 0, 0)


def test_space_that_was_cut_off_is_not_given_to_another_page(tmp_path, caplog):
    pages, cache = write_pages(tmp_path / "pages", PAGES), tmp_path / "cache"
    transform = DBTransforms([Normalize()])  # Pages of other sizes than the first lie behind the slots.
    expected = items(open_pages(pages, transform=transform))
    dataset, other = (open_pages(pages, cache, transform) for _ in range(2))
    assert_same(dataset[0], expected[0])
    length = data_of(str(cache)).stat().st_size
    assert_same(other[0], expected[0])
    for index in range(1, 5):
        assert_same(dataset[index], expected[index])
    assert data_of(str(cache)).stat().st_size > length
    # To the one that did not see it grow the file is as long as it was.
    os.truncate(data_of(str(cache)), length)
    for index in [5, 6, 7, *range(PAGES)]:
        assert_same(other[index], expected[index])
        assert_same(dataset[index], expected[index])
    assert str(cache) in caplog.text
    assert read_right(pages, cache, expected, transform=transform) == (PAGES, 0, 0)
