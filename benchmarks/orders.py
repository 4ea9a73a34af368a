"""What `data.order=blocks` costs in mixing and saves in seeks, against a plain shuffle: computed, no pages are read.

python benchmarks/orders.py --pages 100000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console, exit_with
from ocr.cache.readahead import MAX_AHEAD_BYTES, STEPS
from ocr.checks import check_integer
from ocr.loader.order import BLOCK, block_order, epoch_order

FAR_BYTES = 8 << 20
PAGE_BYTES = 150_000
"""A dense receipt."""
Figures = dict[str, float]


def mixing(order: NDArray[np.integer], batch_size: int) -> Figures:
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


def main() -> int:
    """One row per figure, the mean over some epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100_000, help="of the set (default: 100,000)")
    parser.add_argument("--batch-size", type=int, default=16, help="pages per batch (default: 16)")
    parser.add_argument("--epochs", type=int, default=5, help="whose mean is shown (default: 5)")
    options = parser.parse_args()
    check_integer("--batch-size", options.batch_size, 1)
    check_integer("--pages", options.pages, options.batch_size)
    check_integer("--epochs", options.epochs, 1)
    orders: dict[str, Callable[[int, int, int, bool], NDArray[np.integer]]] = {
        "shuffle": epoch_order,
        "blocks": block_order,
    }
    found = {
        name: [mixing(make(options.pages, 0, epoch, True), options.batch_size) for epoch in range(options.epochs)]
        for name, make in orders.items()
    }
    title = f"{options.pages:,} pages of {PAGE_BYTES / 1e3:.0f} kB, batches of {options.batch_size}"
    table = Table("", *orders, title=title, title_justify="left")
    for name in found["shuffle"][0]:
        table.add_row(name, *(f"{np.mean([epoch[name] for epoch in epochs]):.3g}" for epochs in found.values()))
    console.print(table)
    return 0


if __name__ == "__main__":
    exit_with(main)
