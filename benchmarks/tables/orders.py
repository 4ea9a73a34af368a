"""What `data.order=blocks` costs in mixing and saves in seeks, against a plain shuffle: computed, no page is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Data, Figure, Row, benchmark
from ocr.cache.readahead import MAX_AHEAD_BYTES, STEPS
from ocr.loader.order import BLOCK, block_order, epoch_order

PAGES, BATCH, EPOCHS = 100_000, 16, 5
PAGE_BYTES, FAR_BYTES = 150_000, 8 << 20
"""A dense receipt, and a step that a disk seeks for."""
Order = Callable[[int, int, int, bool], NDArray[np.integer]]
ORDERS: dict[str, Order] = {"shuffle": epoch_order, "blocks": block_order}


@benchmark("orders", table="loading#orders", pages=())
def orders(data: Data) -> Iterator[Row]:
    """Mixing and seeks of the orders of an epoch."""
    found = {
        name: [mixing(make(PAGES, 0, epoch, True), BATCH) for epoch in range(EPOCHS)] for name, make in ORDERS.items()
    }
    caption = f"{PAGES:,} pages of {PAGE_BYTES / 1e3:.0f} kB, batch size {BATCH}"
    for what in found["shuffle"][0]:
        means = {name: Figure(float(np.mean([epoch[what] for epoch in epochs]))) for name, epochs in found.items()}
        yield Row(what, means, caption)


def mixing(order: NDArray[np.integer], batch_size: int) -> dict[str, float]:
    """Of one epoch: how well the pages of a batch are mixed, and how far apart the reads are."""
    batches = order[: len(order) // batch_size * batch_size].reshape(-1, batch_size).astype(np.int64)
    blocks = np.sort(batches // BLOCK, axis=1)
    different = 1 + (np.diff(blocks, axis=1) != 0).sum(axis=1)
    same = (blocks[:, :, None] == blocks[:, None, :]).sum(axis=2) - 1
    independent = (len(order) ** 2 - 1) / 12 / batch_size
    announced = MAX_AHEAD_BYTES // STEPS // PAGE_BYTES
    read = np.concatenate([np.sort(order[at : at + announced]) for at in range(0, len(order), announced)])
    far = np.abs(np.diff(read.astype(np.int64))) * PAGE_BYTES > FAR_BYTES
    return {
        "blocks that a batch has pages of": float(different.mean()),
        "other pages of its own block that a page meets in its batch": float(same.mean()),
        "variance of the mean position of a batch, against independent pages": float(
            batches.mean(axis=1).var() / independent
        ),
        "pages of 100 that are more than 8 MB away from the one read before": float(100 * far.mean()),
    }
