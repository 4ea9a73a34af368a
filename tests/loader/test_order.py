"""Which samples a rank sees: all of them once, in an order of (seed, epoch), resumable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocr.errors import ConfigError
from ocr.loader.order import EpochBatches, epoch_order


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


@given(st.integers(1, 200), st.integers(1, 17), st.integers(1, 5))
def test_dropping_the_last_leaves_full_batches_only(count, batch_size, ranks):
    if count < batch_size * ranks:
        with pytest.raises(ConfigError, match=r"do not fill a batch.*drop_last=false"):
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


def test_an_epoch_goes_on_where_it_stopped_and_the_next_starts_at_its_beginning():
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
    with pytest.raises(ConfigError, match=f"batch_size={batch_size}"):
        EpochBatches(4, batch_size, shuffle=False, drop_last=False)


def test_fewer_pages_than_devices_is_an_error():
    with pytest.raises(ConfigError, match="use fewer devices"):
        EpochBatches(1, 1, shuffle=False, drop_last=False, world_size=2)
