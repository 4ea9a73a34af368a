"""A dataset whose batches are read in threads: what `__getitems__` would bring to one that waits for its items."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FETCHES = 8
"""Items that are waited for at the same time."""


class ThreadedReader:
    """The same items; torch's DataLoader asks for a batch of them in one call."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        # A pool per batch: worker processes are forked from one that may have none.
        with ThreadPoolExecutor(FETCHES) as pool:
            return list(pool.map(self.dataset.__getitem__, indices))
