"""Who owns what in the loader: a batch's memory, a prepared batch, the batches ahead, and each rank's share."""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sameness import assert_same
from test_loader import open_split, plain

from ocr.loader import Loader
from ocr.loader.batch_maker import Pending, SlotBatchMaker, choose_maker
from ocr.loader.buffers import BatchBuffer, BufferPool
from ocr.loader.order import EpochBatches
from ocr.loader.schedule import Schedule
from ocr.loader.stream_order import StreamBatches
from ocr.pipeline.batch import LISTED


class Page:
    """What a pool needs to know of a sample."""

    size = (8, 6)
    image = np.zeros((6, 8, 3), dtype=np.uint8)


def take(pool: BufferPool) -> BatchBuffer:
    return pool.take(2, Page(), None)


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


class SlowPool(BufferPool):
    """Lets other threads run while it makes a buffer."""

    def take(self, *page: Any) -> BatchBuffer:
        for _ in range(50):
            os.sched_yield()
        return super().take(*page)


class PagesAtOnce:
    """Pages whose workers ask for their slots at the same time; each is filled with its number."""

    transform = SimpleNamespace(host_normalization=None)
    sample = SimpleNamespace(size=(4, 4), image=np.zeros((4, 4, 3), np.uint8), filename="page")

    def __init__(self, workers: int) -> None:
        self.together = threading.Barrier(workers)

    def write(self, index: int, slot_for: Callable[[Any], Any], epoch: int | None) -> dict[str, Any]:
        self.together.wait()
        slot = slot_for(self.sample)
        slot.image[:] = index
        return dict.fromkeys(LISTED, str(index))


def test_pages_made_at_the_same_time_share_the_memory_of_their_batch():
    workers = 4
    maker = SlotBatchMaker(PagesAtOnce(workers), None)
    maker.buffers = SlowPool()
    with ThreadPoolExecutor(workers) as threads:
        for first in range(0, 120, workers):
            pending = Pending(range(first, first + workers))
            done = list(threads.map(lambda position, batch=pending: maker.make(batch, position), range(workers)))
            assert sorted(done) == [False] * (workers - 1) + [True]
            assert pending.batch["images"][:, 0, 0, 0].tolist() == list(pending.indices)


def test_a_batch_that_was_prepared_for_the_next_pass_is_not_handed_out_for_another(synthetic, tmp_path):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    expected = plain(open_split(synthetic, "val"), 2)
    dataset.fill_cache()
    maker = choose_maker(dataset, None, None)
    for wanted in (1, 0):
        maker.end_pass(lambda: [0, 1])
        pending = Pending([2 * wanted, 2 * wanted + 1])
        assert maker.begin(pending)
        assert_same(pending.batch, expected[wanted])


def test_a_loaded_state_comes_before_a_prepared_batch(synthetic, tmp_path):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    dataset.fill_cache()
    loader = Loader(dataset, 2, 2)
    expected = list(loader)
    loader._maker.end_pass(loader.batch_sampler.first)
    loader.load_state_dict(loader.state_dict() | {"epoch": 1, "batches": 1})
    assert_same(list(loader), expected[1:])


class MustWaitError(Exception):
    """Raised instead of waiting."""


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_no_batch_is_opened_while_as_many_as_allowed_are_not_taken(ahead, monkeypatch):
    schedule = Schedule(iter([[number] for number in range(9)]), ahead)

    def refuse() -> None:
        raise MustWaitError

    monkeypatch.setattr(schedule._change, "wait", refuse)
    for _ in range(ahead):
        assert schedule.next_task() == (None, 0)
        schedule.begun(schedule.open_next(), done=True)
    for _ in range(3):
        with pytest.raises(MustWaitError):
            schedule.next_task()
        schedule.take(1, pytest.fail)
        assert schedule.next_task() == (None, 0)
        schedule.begun(schedule.open_next(), done=True)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(("count", "drop_last"), [(24, False), (24, True), (29, True)])
def test_the_kth_batches_of_all_ranks_are_the_kth_batch_of_one_rank(ranks, count, drop_last):
    settings = {"shuffle": True, "drop_last": drop_last, "seed": 5}
    for epoch in range(3):
        whole = EpochBatches(count, 4 * ranks, **settings).batches(epoch, 0)
        shares = [
            EpochBatches(count, 4, rank=rank, world_size=ranks, **settings).batches(epoch, 0) for rank in range(ranks)
        ]
        for batch, *parts in zip(whole, *shares, strict=True):
            assert sorted(index for part in parts for index in part) == sorted(batch)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(("count", "drop_last"), [(24, False), (29, True), (26, False)])
def test_the_kth_batches_of_a_stream_are_shared_out_among_the_ranks(ranks, count, drop_last):
    def batches(size: int, **rank: int) -> StreamBatches:
        settings = {"shuffle": False, "drop_last": drop_last}
        return StreamBatches(lambda seed, epoch, shuffle: iter(range(count)), size, **settings, **rank)

    shares = [batches(4, rank=rank, world_size=ranks) for rank in range(ranks)]
    # Leftover samples that are not enough for all ranks are added to the last batch.
    together = [list(chain(*parts)) for parts in zip(*shares, strict=True)]
    starts = range(0, len(together) * 4 * ranks, 4 * ranks)
    assert [part[0] for part in together] == list(starts)
    kept = count // (4 * ranks) * 4 * ranks if drop_last else count
    assert list(chain(*together)) == list(range(kept))
