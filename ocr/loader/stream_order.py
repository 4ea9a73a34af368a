"""The batches of samples whose number is unknown: every rank sees all of them, and takes its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Unpack

from ocr.loader.order import OrderSettings, RankBatches, even_start

Handle = int
"""Identifies a sample of a stream until it is made; a dataset's own subclass of int is passed on as it is."""


class StreamBatches(RankBatches):
    """The batches of one rank, none lost or repeated, the same number on every rank, known only at the end.

    One batch of every rank is taken from the stream at a time and shared out. Samples left over at the end are shared
    out too, or added to the last batches if there is not one for each rank; with `drop_last` they are left out.
    """

    def __init__(
        self,
        handles: Callable[[int, int, bool], Iterator[Handle]],
        batch_size: int,
        *,
        forget: Callable[[Sequence[Handle]], None] = lambda handles: None,
        **settings: Unpack[OrderSettings],
    ) -> None:
        """`handles` is a function of seed, epoch and shuffle; `forget` is called with those that other ranks make."""
        super().__init__(batch_size, **settings)
        self.handles, self.forget = handles, forget

    def __iter__(self) -> Iterator[list[Handle]]:
        return self.batches(self.epoch, self.first_batch)

    def batches(self, epoch: int, first_batch: int) -> Iterator[list[Handle]]:
        """The batches of an epoch from `first_batch` on."""
        for number, of_all_ranks in enumerate(self._batches_of_all_ranks(epoch)):
            parts = _shared_out(of_all_ranks, self.world_size)
            own = [] if number < first_batch else parts.pop(self.rank)
            for others in parts:
                self.forget(others)
            if own:
                yield own

    def _batches_of_all_ranks(self, epoch: int) -> Iterator[list[Handle]]:
        """What all ranks take at a time; one step behind the stream, because the last one may get the rest."""
        size = self.batch_size * self.world_size
        before: list[Handle] = []
        current: list[Handle] = []
        for handle in self.handles(self.seed, epoch, self.shuffle):
            current.append(handle)
            if len(current) == size:
                if before:
                    yield before
                before, current = current, []
        yield from self._last_batches(before, current)

    def _last_batches(self, before: list[Handle], rest: list[Handle]) -> Iterator[list[Handle]]:
        if not before and len(rest) < (self.batch_size * self.world_size if self.drop_last else self.world_size):
            raise self.too_few(len(rest))
        if self.drop_last:
            self.forget(rest)
            rest = []
        if len(rest) < self.world_size:
            yield before + rest
        else:
            yield from filter(None, (before, rest))


def _shared_out(handles: list[Handle], ranks: int) -> list[list[Handle]]:
    """Neighbours stay together; the first ranks have one more.

    >>> _shared_out([1, 2, 3, 4, 5], 3)
    [[1, 2], [3, 4], [5]]
    """
    starts = [even_start(len(handles), ranks, rank) for rank in range(ranks + 1)]
    return [handles[start:end] for start, end in pairwise(starts)]
