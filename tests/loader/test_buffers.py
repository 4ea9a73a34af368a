"""buffers: a batch owns its memory as long as anything refers to it; pages made at once share it."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pages import open_split, plain
from sameness import assert_same

from ocr.geometry.polygons import Polygons
from ocr.loader import Loader
from ocr.loader.buffers import BatchBuffer, BufferPool, PageBatches, Pending
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets


def page(width: int = 8, height: int = 6) -> Sample:
    return Sample(0, "page", "page", Polygons.pack([]), image=np.zeros((height, width, 3), np.uint8))


def take(pool: BufferPool) -> BatchBuffer:
    return pool.take(2, page(), None)


@pytest.fixture
def pool(monkeypatch) -> BufferPool:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return BufferPool()


def test_a_held_batch_keeps_its_buffer_however_the_interpreter_counts_references(pool, monkeypatch):
    buffer = take(pool)
    held = buffer.batch([0, 1])
    # Python 3.14 does not count the references of local variables.
    monkeypatch.setattr(sys, "getrefcount", lambda value: 1)
    assert take(pool) is not buffer
    del held


@pytest.mark.parametrize("name", ["images", "prob_maps", "thresh_masks"])
def test_any_view_of_one_tensor_keeps_the_buffer_until_it_is_released(pool, name):
    buffer = take(pool)
    for part in (lambda tensor: tensor[1], lambda tensor: tensor[0].numpy()[:1], lambda tensor: tensor.detach()[:1]):
        view = part(buffer.batch([0, 1])[name])
        assert not buffer.is_idle()
        del view
        assert buffer.is_idle()
        assert take(pool) is buffer


def test_a_buffer_that_is_being_filled_or_whose_samples_were_copied_is_told_apart(pool):
    buffer = take(pool)
    assert take(pool) is not buffer
    batch = buffer.batch([1])
    assert take(pool) is buffer
    assert len(batch["images"]) == 1


def test_a_batch_that_is_still_held_never_changes_and_others_are_used_again(synthetic):
    loader = Loader(open_split(synthetic, "train"), 2, 2, shuffle=True)
    held = list(loader)
    copies = [{name: value.clone() for name, value in batch.items() if torch.is_tensor(value)} for batch in held]
    views = [batch["images"][0].numpy() for batch in held]
    for _ in range(3):
        for _ in loader:
            pass
    for batch, copy, view in zip(held, copies, views, strict=True):
        assert all(torch.equal(batch[name], value) for name, value in copy.items())
        assert np.array_equal(view, copy["images"][0].numpy())
    del held, batch, views, view
    addresses = {batch["images"].data_ptr() for _ in range(5) for batch in loader}
    assert len(addresses) <= loader.batches_ahead + 2


def test_writing_into_a_batch_in_place_does_not_reach_the_cache_or_the_next_epoch(synthetic, tmp_path):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    loader = Loader(dataset, 3, 2)
    for _ in range(3):
        for batch in loader:
            for value in batch.values():
                if torch.is_tensor(value):
                    value.zero_()
            for polygons in batch["polygons"]:
                for polygon in polygons:
                    if polygon.flags.writeable:
                        polygon[:] = -1
    assert_same(list(loader), plain(open_split(synthetic, "val")))


class SlowPool(BufferPool):
    """Lets other threads run while it makes a buffer."""

    def take(self, *page: Any) -> BatchBuffer:
        for _ in range(50):
            os.sched_yield()
        return super().take(*page)


class PagesAtOnce:
    """A path whose workers ask for their slots at the same time; each slot is filled with its number."""

    source, padding, drawn = SimpleNamespace(names=()), None, Targets()

    def __init__(self, workers: int) -> None:
        self.together = threading.Barrier(workers)

    def write(self, index: int, epoch: int, place: Any) -> Sample:
        self.together.wait()
        drawn = SimpleNamespace(write=lambda sample, maps: "drawn")
        sample = place.write(page(4, 4), None, drawn)
        place._maker.slot(place._pending, place._position, sample, None).image[:] = index
        return sample


def test_pages_made_at_the_same_time_share_the_memory_of_their_batch():
    workers = 4
    maker: Any = PageBatches(PagesAtOnce(workers), None)  # type: ignore[arg-type]
    maker.buffers = SlowPool()
    with ThreadPoolExecutor(workers) as threads:
        for first in range(0, 120, workers):
            pending = Pending(range(first, first + workers), 0)
            done = list(threads.map(lambda position, batch=pending: maker.make(batch, position), range(workers)))
            assert sorted(done) == [False] * (workers - 1) + [True]
            assert pending.batch["images"][:, 0, 0, 0].tolist() == list(pending.indices)
