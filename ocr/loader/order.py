"""Which samples a rank sees in an epoch, in which order: a function of `(seed, epoch)` and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Required, Self, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.checks import check_integer
from ocr.errors import ConfigError

_PIECE = 1 << 20
Order = NDArray[np.signedinteger[Any]]
"""Sample indices: 4 bytes each, 8 if there are more than two thousand million."""


def epoch_order(count: int, seed: int, epoch: int, shuffle: bool) -> Order:
    """The order of all samples.

    >>> epoch_order(4, 0, 0, shuffle=False).tolist()
    [0, 1, 2, 3]
    """
    dtype: type[np.signedinteger[Any]] = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    order: Order = np.arange(count, dtype=dtype)
    if shuffle:
        # The same order as `permutation(count)`, in half the memory.
        np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch)))).shuffle(order)
    return order


def shard_order(shard_of: Order, seed: int, epoch: int, buffer: int) -> Order:
    """A shuffled order that goes from shard to shard: whole shards at random, their samples shuffled in groups.

    A group holds at least `buffer` samples, so that only a few shards are open at a time.

    >>> sorted(shard_order(np.array([0, 0, 1, 1, 2]), seed=0, epoch=0, buffer=2).tolist())
    [0, 1, 2, 3, 4]
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))
    by_shard = np.argsort(shard_of, kind="stable").astype(epoch_order(len(shard_of), 0, 0, False).dtype)
    ends = np.cumsum(np.bincount(shard_of))
    groups: list[Order] = []
    group: list[Order] = []
    for shard in rng.permutation(len(ends)).tolist():
        group.append(by_shard[ends[shard - 1] if shard else 0 : ends[shard]])
        if sum(map(len, group)) >= buffer:
            groups.append(rng.permutation(np.concatenate(group)))
            group = []
    return np.concatenate([*groups, rng.permutation(np.concatenate(group))] if group else groups)


def in_first_use(shards: int, shard_of: Order, samples: Order | range) -> list[int]:
    """The numbers of the shards of samples, each once, in the order in which the samples need them.

    >>> in_first_use(3, np.array([0, 0, 1, 1, 2]), np.array([3, 0, 2, 1]))
    [1, 0]
    """
    first = np.full(shards, -1, dtype=np.int64)
    # From the end, in pieces: what is written last stays.
    for end in range(len(samples), 0, -_PIECE):
        piece = np.asarray(samples[max(0, end - _PIECE) : end])[::-1]
        first[shard_of[piece]] = np.arange(end - 1, end - 1 - len(piece), -1)
    used = np.flatnonzero(first >= 0)
    in_order: list[int] = used[np.argsort(first[used])].tolist()
    return in_order


def rank_and_world_size(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """The values given or, if None, those of torch.distributed: rank 0 of 1 if it is not initialised."""
    initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
    if rank is None:
        rank = torch.distributed.get_rank() if initialized else 0
    if world_size is None:
        world_size = torch.distributed.get_world_size() if initialized else 1
    return rank, world_size


class OrderSettings(TypedDict, total=False):
    """How the samples of an epoch become the batches of one rank."""

    shuffle: Required[bool]
    drop_last: Required[bool]
    seed: int
    rank: int
    world_size: int


@dataclass(slots=True, eq=False)
class Pass:
    """One pass over an epoch."""

    epoch: int
    done: int
    """How many batches of the epoch were handed out, those before a resume included."""
    running: bool = True


class EpochBatches:
    """The batches of one rank, none lost or repeated, the same number on every rank.

    With `drop_last` every rank takes full batches and the rest of the epoch's order is left out, a different rest in
    every epoch. Without it, ranks share all samples, and those with one sample fewer have a smaller batch, never one
    batch fewer: a rank that stopped early would leave the others waiting.
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
        world_size: int = 1,
        order: Callable[[int, int, bool], Order] | None = None,
    ) -> None:
        """`order` is a dataset's own function of seed, epoch and shuffle; each rank takes one piece of it."""
        check_integer("batch_size", batch_size, 1)
        check_integer("seed", seed)
        check_integer("world_size", world_size, 1)
        check_integer("rank", rank)
        if rank >= world_size:
            problem = f"rank={rank} must be an integer < world_size={world_size}: ranks count from 0"
            raise ConfigError(problem, setting="rank", value=rank)
        self.count, self.batch_size, self.shuffle, self.drop_last = count, batch_size, shuffle, drop_last
        self.seed, self.rank, self.world_size, self.order = seed, rank, world_size, order
        self.epoch = self.first_batch = 0
        self._latest: Pass | None = None
        if not len(self):
            raise self._too_few()

    @property
    def sampler(self) -> Self:
        """Lightning calls `set_epoch` of this."""
        return self

    def __len__(self) -> int:
        if self.drop_last:
            return self.count // (self.batch_size * self.world_size)
        # With batches of one page, the rank with one page more has two in one of them: no rank may have an empty batch.
        return min(-(-self.count // (self.batch_size * self.world_size)), self.count // self.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        return self.batches(self.epoch, self.first_batch)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass; an epoch that is being resumed keeps its position."""
        check_integer("epoch", epoch)
        if epoch != self.epoch:
            self.epoch, self.first_batch = epoch, 0
        # Lightning names an epoch again while its pass is running.
        if self._latest is not None and not (self._latest.running and self._latest.epoch == epoch):
            self._latest = None

    def start_pass(self) -> Pass:
        """Start a pass; the one after it is the next epoch, whether or not this one is interrupted."""
        started = self._latest = Pass(self.epoch, self.first_batch)
        self.epoch, self.first_batch = self.epoch + 1, 0
        return started

    def end_pass(self, ended: Pass) -> None:
        """All batches of a pass were handed out."""
        if self._latest is ended:
            self._latest = None

    @property
    def position(self) -> tuple[int, int]:
        """The epoch of the latest pass and how many of its batches were handed out; else where the next one starts."""
        latest = self._latest
        epoch, done = (latest.epoch, latest.done) if latest is not None else (self.epoch, self.first_batch)
        # With the last batch in hand, the next epoch follows.
        return (epoch, done) if done < len(self) else (epoch + 1, 0)

    def resume(self, epoch: int, done: int) -> None:
        """The next pass continues an epoch after `done` batches."""
        self.epoch, self.first_batch = (epoch, done) if done < len(self) else (epoch + 1, 0)
        self._latest = None

    def batches(self, epoch: int, first_batch: int) -> BatchPlan:
        """The batches of an epoch from `first_batch` on."""
        size = self.batch_size if self.drop_last or self.world_size == 1 else None
        return BatchPlan(self._order_of_rank(epoch), len(self), size, first_batch)

    def _order_of_all(self, epoch: int) -> Order | range:
        if self.order is not None:
            return self.order(self.seed, epoch, self.shuffle)
        return epoch_order(self.count, self.seed, epoch, True) if self.shuffle else range(self.count)

    def _order_of_rank(self, epoch: int) -> Order | range:
        order = self._order_of_all(epoch)
        if self.drop_last:
            order = order[: len(self) * self.batch_size * self.world_size]
        # Shuffled samples are dealt in turns, so that all ranks together have the batches of one rank with a larger
        # batch. Unshuffled ones stay neighbours, which are near each other on the disk.
        if self.shuffle and self.order is None:
            return order[self.rank :: self.world_size]
        return order[
            even_start(len(order), self.world_size, self.rank) : even_start(len(order), self.world_size, self.rank + 1)
        ]

    def _too_few(self) -> ConfigError:
        """The error for fewer pages than the ranks need."""
        if not self.count:
            return ConfigError("the dataset has no pages or items. Pass one that has some", setting="dataset", value=0)
        fix = "Set drop_last=false, or lower batch_size" if self.drop_last else "Use fewer devices"
        batch = f"a batch of {self.batch_size} on each of {self.world_size} devices"
        setting, value = ("batch_size", self.batch_size) if self.drop_last else ("world_size", self.world_size)
        return ConfigError(f"{self.count} pages do not fill {batch}. {fix}", setting=setting, value=value)


class BatchPlan(Iterator[list[int]]):
    """The batches of one pass, each cut from the order of the rank when it is asked for."""

    def __init__(self, order: Order | range, batches: int, batch_size: int | None, first_batch: int = 0) -> None:
        """Without a batch size, all samples are shared out evenly."""
        self._order, self._batches, self._size, self._next = order, batches, batch_size, first_batch

    def __next__(self) -> list[int]:
        if self._next >= self._batches:
            raise StopIteration
        batch = self._order[self._start(self._next) : self._start(self._next + 1)]
        self._next += 1
        return list(batch) if isinstance(batch, range) else batch.tolist()

    def __length_hint__(self) -> int:
        return max(0, self._batches - self._next)

    @property
    def samples(self) -> Order | range:
        """All samples that are still to come."""
        return self._order[self._start(self._next) : self._start(self._batches)]

    def _start(self, batch: int) -> int:
        if self._size is None:
            return even_start(len(self._order), self._batches, batch)
        return min(len(self._order), batch * self._size)


def even_start(count: int, parts: int, part: int) -> int:
    """Where a part starts if all are as even as possible; the first ones have one more.

    >>> [even_start(7, 3, part) for part in range(4)]
    [0, 3, 5, 7]
    """
    return part * (count // parts) + min(part, count % parts)
