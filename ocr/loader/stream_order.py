"""The batches of samples that nobody has counted: every rank sees all of them go by, and takes its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ocr.errors import ConfigError
from ocr.loader.order import Epochs

Handle = int
"""Stands for a sample until it is made."""


class StreamBatches(Epochs):
    """The batches of one rank, none lost or repeated, the same number on every rank; how many is known at the end.

    As many samples as all ranks take at a time are shared out together. What is left over at the end is shared out too,
    or added to the last batches where it is not enough for a sample each; with `drop_last` it is left out.
    """

    def __init__(
        self,
        handles: Callable[[int, int, bool], Iterator[Handle]],
        batch_size: int,
        *,
        shuffle: bool,
        drop_last: bool,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        forget: Callable[[Sequence[Handle]], None] = lambda handles: None,
    ) -> None:
        """`handles` gives those of seed, epoch and whether to shuffle; `forget` hears of those that others make."""
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} must be at least 1")
        self.handles, self.batch_size, self.forget = handles, batch_size, forget
        self.shuffle, self.drop_last, self.seed = shuffle, drop_last, seed
        self.rank, self.ranks = rank, ranks

    def __iter__(self) -> Iterator[list[Handle]]:
        for number, together in enumerate(self._shared_out()):
            parts = [part.tolist() for part in np.array_split(np.array(together, dtype=np.int64), self.ranks)]
            mine = [] if number < self.first_batch else parts.pop(self.rank)
            for others in parts:
                self.forget(others)
            if mine:
                yield mine

    def _shared_out(self) -> Iterator[list[Handle]]:
        """What all ranks take at a time."""
        size = self.batch_size * self.ranks
        before: list[Handle] = []
        together: list[Handle] = []
        for handle in self.handles(self.seed, self.epoch, self.shuffle):
            together.append(handle)
            if len(together) == size:
                if before:
                    yield before
                before, together = together, []
        if not before and len(together) < (size if self.drop_last else self.ranks):
            cure = "set drop_last=false, or lower batch_size" if self.drop_last else "use fewer devices"
            batch = f"a batch of {self.batch_size} on each of {self.ranks} devices"
            raise ConfigError(f"{len(together)} pages do not fill {batch}: {cure}")
        if self.drop_last:
            self.forget(together)
            together = []
        too_few = len(together) < self.ranks
        if before:
            yield before + together if too_few else before
        if together and not too_few:
            yield together
