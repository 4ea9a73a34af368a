"""Which samples a rank sees in an epoch, in which order: a function of `(seed, epoch)` and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError


def epoch_order(count: int, seed: int, epoch: int, shuffle: bool) -> NDArray[np.int64]:
    """The order of all samples.

    >>> epoch_order(4, 0, 0, shuffle=False).tolist()
    [0, 1, 2, 3]
    """
    if not shuffle:
        return np.arange(count)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch)))).permutation(count)


def shard_order(shard_of: NDArray[np.int64], seed: int, epoch: int, buffer: int) -> NDArray[np.int64]:
    """A shuffled order that goes from shard to shard: whole shards at random, their samples shuffled in groups.

    A group holds at least `buffer` samples, so that a few shards are open at a time.

    >>> sorted(shard_order(np.array([0, 0, 1, 1, 2]), seed=0, epoch=0, buffer=2).tolist())
    [0, 1, 2, 3, 4]
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))
    by_shard = np.argsort(shard_of, kind="stable")
    ends = np.cumsum(np.bincount(shard_of))
    groups: list[NDArray[np.int64]] = []
    group: list[NDArray[np.int64]] = []
    for shard in rng.permutation(len(ends)).tolist():
        group.append(by_shard[ends[shard - 1] if shard else 0 : ends[shard]])
        if sum(map(len, group)) >= buffer:
            groups.append(rng.permutation(np.concatenate(group)))
            group = []
    return np.concatenate([*groups, rng.permutation(np.concatenate(group))] if group else groups)


class Epochs:
    """The epoch of the next pass, and where in it to go on."""

    epoch = 0
    first_batch = 0

    @property
    def sampler(self) -> Self:
        """Lightning tells the epoch to this."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order is drawn next; one that goes on in the middle keeps its place."""
        if epoch != self.epoch:
            self.epoch, self.first_batch = epoch, 0


class EpochBatches(Epochs):
    """The batches of one rank, none lost or repeated, the same number on every rank.

    With `drop_last` every rank takes full batches and the rest of the epoch's order is left out, another rest every
    epoch. Without it, ranks share all samples, and those with one fewer have a smaller batch, never one batch fewer:
    a rank that stopped early would leave the others waiting.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        *,
        shuffle: bool,
        drop_last: bool,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        order: Callable[[int, int, bool], NDArray[np.int64]] | None = None,
    ) -> None:
        """`order` is a dataset's own, of seed, epoch and whether to shuffle; each rank takes one piece of it."""
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} must be at least 1")
        self.count, self.batch_size = count, batch_size
        self.shuffle, self.drop_last, self.seed = shuffle, drop_last, seed
        self.rank, self.ranks, self.order = rank, ranks, order
        if not len(self):
            cure = "set drop_last=false, or lower batch_size" if drop_last else "use fewer devices"
            raise ConfigError(f"{count} pages do not fill a batch of {batch_size} on each of {ranks} devices: {cure}")

    def __len__(self) -> int:
        if self.drop_last:
            return self.count // (self.batch_size * self.ranks)
        # Batches of one page: the rank with a page more has two in one of them, for no rank may have an empty batch.
        return min(-(-self.count // (self.batch_size * self.ranks)), self.count // self.ranks)

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches(self.first_batch)

    def first(self) -> list[int]:
        """The first batch of every epoch, without shuffling."""
        return next(self._batches(0))

    def _batches(self, first_batch: int) -> Iterator[list[int]]:
        if self.order is not None:
            order = self.order(self.seed, self.epoch, self.shuffle)
        else:
            order = epoch_order(self.count, self.seed, self.epoch, self.shuffle)
        if self.drop_last:
            order = order[: len(self) * self.batch_size * self.ranks]
        # In turns, so that all ranks together have the batches of one with a larger batch; unshuffled ones are
        # neighbours, which a cache hands out without a copy.
        if self.ranks > 1:
            in_turns = self.shuffle and self.order is None
            order = order[self.rank :: self.ranks] if in_turns else np.array_split(order, self.ranks)[self.rank]
        count, batches = len(order), len(self)
        if self.drop_last or self.ranks == 1:
            starts = [min(count, batch * self.batch_size) for batch in range(batches + 1)]
        else:
            # As even as can be: the first ones have one more.
            starts = [batch * (count // batches) + min(batch, count % batches) for batch in range(batches + 1)]
        for batch in range(first_batch, batches):
            yield order[starts[batch] : starts[batch + 1]].tolist()
