"""Which samples a rank sees: all of them once, in an order of (seed, epoch), resumable."""

from operator import length_hint

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rejection import rejects

from ocr.errors import ConfigError
from ocr.loader import order
from ocr.loader.order import EpochBatches, epoch_order, in_first_use


def all_ranks(count: int, batch_size: int, ranks: int, **settings) -> list[list[list[int]]]:
    made = [EpochBatches(count, batch_size, rank=rank, world_size=ranks, **settings) for rank in range(ranks)]
    return [list(batches) for batches in made]


@given(st.integers(1, 200), st.integers(1, 17), st.integers(1, 5), st.booleans(), st.integers(0, 3))
def test_ranks_share_all_samples_without_loss_or_repetition(count, batch_size, ranks, shuffle, seed):
    if count < ranks:
        return
    shares = all_ranks(count, batch_size, ranks, shuffle=shuffle, drop_last=False, seed=seed)
    seen = sorted(index for share in shares for batch in share for index in batch)
    assert seen == list(range(count))
    assert len({len(share) for share in shares}) == 1
    assert all(1 <= len(batch) <= max(batch_size, 2) for share in shares for batch in share)


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


@given(st.integers(1, 200), st.integers(1, 17), st.integers(1, 5))
def test_dropping_the_last_leaves_full_batches_only(count, batch_size, ranks):
    if count < batch_size * ranks:
        with rejects(ConfigError, setting="batch_size", value=batch_size):
            EpochBatches(count, batch_size, shuffle=True, drop_last=True, world_size=ranks)
        return
    shares = all_ranks(count, batch_size, ranks, shuffle=True, drop_last=True)
    seen = [index for share in shares for batch in share for index in batch]
    assert len(seen) == len(set(seen)) > count - batch_size * ranks
    assert all(len(batch) == batch_size for share in shares for batch in share)


def test_one_rank_takes_batches_in_the_order_of_the_annotation():
    assert all_ranks(5, 2, 1, shuffle=False, drop_last=False) == [[[0, 1], [2, 3], [4]]]


def test_the_order_is_another_in_every_epoch_and_seed_and_the_same_in_the_same():
    orders = {(seed, epoch): tuple(epoch_order(50, seed, epoch, True)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(set(orders.values())) == 4
    assert np.array_equal(epoch_order(50, 1, 1, True), orders[1, 1])


def test_an_epoch_resumes_where_it_stopped_and_the_next_starts_at_its_beginning():
    batches = EpochBatches(10, 2, shuffle=True, drop_last=False)
    batches.set_epoch(3)
    whole = list(batches)
    batches.first_batch = 2
    batches.set_epoch(3)
    assert list(batches) == whole[2:]
    batches.set_epoch(4)
    assert len(list(batches)) == 5


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_needs_a_sample(batch_size):
    with rejects(ConfigError, setting="batch_size", value=batch_size):
        EpochBatches(4, batch_size, shuffle=False, drop_last=False)


def test_fewer_pages_than_devices_is_an_error():
    with rejects(ConfigError, setting="world_size", value=2):
        EpochBatches(1, 1, shuffle=False, drop_last=False, world_size=2)


@pytest.mark.parametrize("count", [1, 2, 50, 70_000])
def test_the_order_of_a_seed_and_an_epoch_is_a_promise_between_versions(count):
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((3, 5))))
    assert epoch_order(count, 3, 5, True).tolist() == rng.permutation(count).tolist()
    assert epoch_order(6, 3, 5, True).tolist() == [5, 0, 2, 4, 1, 3]


class CountedOrder:
    """An order that counts the samples that become Python integers."""

    def __init__(self, samples: np.ndarray, asked: list[int]) -> None:
        self.samples, self.asked = samples, asked

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, part: slice) -> "CountedOrder":
        return CountedOrder(self.samples[part], self.asked)

    def tolist(self) -> list[int]:
        self.asked.append(len(self))
        return self.samples.tolist()


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("drop_last", [True, False])
def test_a_step_plans_its_own_batch_only_and_a_resumed_epoch_starts_there(world_size, drop_last):
    asked: list[int] = []
    settings = {"shuffle": True, "drop_last": drop_last, "world_size": world_size}
    batches = EpochBatches(
        100_000, 10, order=lambda seed, epoch, shuffle: CountedOrder(np.arange(100_000), asked), **settings
    )
    plan = batches.batches(epoch=0, first_batch=2000)
    assert asked == []
    assert next(plan) == list(range(20_000, 20_010))
    next(plan)
    assert asked == [10, 10]
    assert length_hint(plan) == len(batches) - 2002


def test_shards_are_expected_in_the_order_of_their_first_use_however_many_samples_there_are(monkeypatch):
    monkeypatch.setattr(order, "_PIECE", 7)
    shard_of = np.random.default_rng(0).integers(0, 9, 100)
    samples = np.random.default_rng(1).permutation(100)[:60]
    expected = list(dict.fromkeys(shard_of[samples].tolist()))
    assert in_first_use(10, shard_of, samples) == expected
    assert in_first_use(10, shard_of, range(40)) == list(dict.fromkeys(shard_of[:40].tolist()))
    assert in_first_use(10, shard_of, range(0)) == []
