"""A cache whose pages are edited again and again stays small, while a process has it open."""

import numpy as np
import pytest
from cache_worker import items, open_pages, outcomes, read_annotation, write_annotation, write_pages
from PIL import Image
from sameness import assert_same

from ocr.cache.waste import TOO_MUCH, is_wasteful

PAGES = 6
pytestmark = pytest.mark.usefixtures("each_form")


def edit(pages, number: int) -> None:
    """Another picture in place of a page."""
    path = sorted((pages / "images").iterdir())[number % PAGES]
    pixels = np.random.default_rng(number).integers(0, 256, (70, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def pages(tmp_path):
    """Pages whose metadata fits its slot."""
    folder = write_pages(tmp_path / "pages", PAGES)
    annotation = read_annotation(folder)
    annotation[max(annotation)]["words"]["0001"]["transcription"] = "short"
    write_annotation(folder, annotation)
    return folder


def test_samples_that_edits_replaced_do_not_add_up(pages, tmp_path, caplog):
    dataset = open_pages(pages, tmp_path / "cache")
    items(dataset)
    sizes = []
    for number in range(6 * PAGES):
        edit(pages, number)
        dataset.set_epoch(number + 1)
        assert_same(items(dataset), items(open_pages(pages)))
        sizes.append(dataset.cache.store().data_bytes)
    first = 2 * PAGES + 1
    assert max(sizes[first:]) < 1.25 * max(sizes[:first])
    assert 2 <= caplog.text.count(TOO_MUCH) <= 6


def test_what_is_still_looked_at_stays_as_it_was_when_the_cache_is_made_anew(pages, tmp_path, caplog):
    dataset = open_pages(pages, tmp_path / "cache")
    items(dataset)
    dataset.set_epoch(1)
    held, expected = items(dataset), items(open_pages(pages))
    for number in range(2 * PAGES + 2):
        edit(pages, number)
        dataset.set_epoch(number + 2)
        items(dataset)
    assert TOO_MUCH in caplog.text
    assert_same(held, expected)


def test_a_cache_without_edits_is_not_made_anew(pages, tmp_path, caplog):
    dataset = open_pages(pages, tmp_path / "cache")
    for epoch in range(3):
        dataset.set_epoch(epoch)
        items(dataset)
    assert not is_wasteful(dataset.cache.store())
    assert outcomes(dataset)[0] == len(dataset)
    assert not caplog.records


def test_samples_that_do_not_fit_their_slots_are_no_waste(tmp_path, caplog):
    folder = write_pages(tmp_path / "pages", 2)  # The second has more metadata than a slot holds.
    dataset = open_pages(folder, tmp_path / "cache")
    for epoch in range(3):
        dataset.set_epoch(epoch)
        items(dataset)
    assert not is_wasteful(dataset.cache.store())
    assert outcomes(dataset)[0] == len(dataset)


def test_a_cache_that_edits_made_full_has_room_again(pages, tmp_path, caplog):
    dataset = open_pages(pages, tmp_path / "cache")
    items(dataset)
    room = round(1.6 * dataset.cache.store().used_bytes)
    dataset = open_pages(pages, tmp_path / "cache", cache_max_bytes=room)
    for number in range(4 * PAGES):
        edit(pages, number)
        dataset.set_epoch(number + 1)
        assert_same(items(dataset), items(open_pages(pages)))
        assert dataset.cache.store().used_bytes <= room + 4096 * PAGES
    assert f"cache.max_bytes={room}" in caplog.text
    dataset.set_epoch(100)
    items(dataset)
    dataset.set_epoch(101)
    items(dataset)
    assert outcomes(dataset)[0] >= PAGES - 1
    assert TOO_MUCH in caplog.text
