"""data.order=blocks: every page once, an order of (seed, epoch), resumable, and near each other in the file."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rejection import rejects

from ocr.errors import ConfigError
from ocr.loader import Loader
from ocr.loader.order import BLOCK, WINDOW, block_order

COUNTS = st.integers(1, 3 * WINDOW)


class Numbers:
    """Items that are their own index."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"index": index}


def batches(count: int, epoch: int = 0, done: int = 0, **settings) -> list[list[int]]:
    collate = lambda items: {"indices": [item["index"] for item in items]}  # noqa: E731
    loader = Loader(Numbers(count), 16, 0, shuffle=True, order="blocks", collate_fn=collate, **settings)
    loader.batch_sampler.resume(epoch, done)
    return [batch["indices"] for batch in loader]


@given(COUNTS, st.integers(0, 9), st.integers(0, 9))
def test_every_page_comes_once_in_an_order_of_seed_and_epoch(count, seed, epoch):
    order = block_order(count, seed, epoch, True)
    assert sorted(order.tolist()) == list(range(count))
    assert np.array_equal(order, block_order(count, seed, epoch, True))
    if count > BLOCK:
        assert not np.array_equal(order, block_order(count, seed, epoch + 1, True))
        assert not np.array_equal(order, block_order(count, seed + 1, epoch, True))


@given(COUNTS, st.integers(0, 9))
def test_a_window_holds_whole_blocks(count, epoch):
    order = block_order(count, 0, epoch, True)
    size = len(order)
    start = 0
    while start < size:
        end = min(size, start + WINDOW)
        window = order[start:end]
        # The block at the end of the file may be shorter, which moves the end of its window.
        while end < size and not _are_whole(window, count):
            end += 1
            window = order[start:end]
        assert end - start < WINDOW + BLOCK
        assert _are_whole(window, count)
        start = end


def _are_whole(window: np.ndarray, count: int) -> bool:
    blocks = np.unique(window // BLOCK)
    return len(window) == sum(min(BLOCK, count - block * BLOCK) for block in blocks.tolist())


def test_unshuffled_pages_stay_in_order():
    assert block_order(100, 0, 0, False).tolist() == list(range(100))


@given(st.integers(64, 2 * WINDOW), st.integers(1, 4), st.integers(0, 3))
def test_ranks_share_all_pages(count, ranks, epoch):
    shares = [batches(count, epoch, rank=rank, world_size=ranks) for rank in range(ranks)]
    assert sorted(index for share in shares for batch in share for index in batch) == list(range(count))
    assert len({len(share) for share in shares}) == 1


@given(st.integers(64, 2 * WINDOW), st.integers(0, 3), st.integers(0, 3))
def test_an_epoch_is_resumed_with_the_next_batch(count, epoch, done):
    assert batches(count, epoch, done) == batches(count, epoch)[done:]


def test_a_batch_mixes_pages_of_many_blocks_and_of_the_whole_file():
    made = np.array(batches(16 * WINDOW))
    blocks = [len(np.unique(batch // BLOCK)) for batch in made]
    assert np.mean(blocks) > 12
    assert abs(np.corrcoef(np.arange(made.size), made.reshape(-1))[0, 1]) < 0.2


def test_an_unknown_order_is_named():
    with rejects(ConfigError, setting="data.order", value="block"):
        Loader(Numbers(4), order="block")
