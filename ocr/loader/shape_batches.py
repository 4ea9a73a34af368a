"""Batches of pages that keep their own shape: pages of similar shape share a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, TypedDict, Unpack

import numpy as np

from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.loader.order import BatchPlan, EpochBatches, Order, OrderSettings, rank_and_world_size
from ocr.loader.protocol import HasPageShapes, ShardedPages
from ocr.loader.shapes import Numbers, choose_shapes, smallest_holding
from ocr.pipeline.stage import Sizes

MAX_SHAPES = 8
"""Different shapes of batches: with 8 the padding of real receipts is 5 % of the pixels, with 4 it is 8 to 9 %."""
MANY_PAGES = 100_000
"""So many pages fill batches of every shape, and what is left over does not count."""


class ShapeSettings(TypedDict):
    """How many shapes batches have, and how many pixels; None for as many as `batch_size` pages have."""

    shapes: int
    pixels: int | None


class ShapedBatch(list[int]):
    """The samples of one batch, and the (height, width) that they are padded to."""

    shape: tuple[int, int] | None = None


class ShapeBatches(EpochBatches):
    """The batches of one rank if pages keep their shape: every page once per epoch, all ranks with one shape at a time.

    Pages come in the order of `(seed, epoch)`; each waits for others of its shape, and a batch comes when its last page
    does. Pages that are left over at the end of an epoch share batches of the next larger shape; without `drop_last`
    and with one rank they make smaller batches of their own shape. With `pixels`, a batch has as many pages as fit
    into so many pixels, instead of `batch_size`.
    """

    def __init__(
        self,
        sizes: Sizes,
        batch_size: int,
        *,
        shapes: int = MAX_SHAPES,
        pixels: int | None = None,
        order: Callable[[int, int, bool], Order] | None = None,
        **settings: Unpack[OrderSettings],
    ) -> None:
        """`sizes` are the (width, height) of the pages; `order` is a dataset's own function of seed, epoch, shuffle."""
        check_integer("data.batch_shapes", shapes, 1)
        if pixels is not None:
            check_integer("data.batch_pixels", pixels, 1)
        self.sizes, self.max_shapes, self.pixels = np.asarray(sizes, dtype=np.int64), shapes, pixels
        super().__init__(len(self.sizes), batch_size, order=order, **settings)

    @property
    def shapes(self) -> Sizes:
        """The (width, height) of batches, the smallest first."""
        return self._composer.shapes

    @property
    def most_pages(self) -> int:
        """Pages of the largest batch of one rank; the last one may have one more."""
        return -(-max(self._composer.pages) // self.world_size)

    def __len__(self) -> int:
        return self._composed_once[1] if self.count else 0

    def batches(self, epoch: int, first_batch: int) -> ShapePlan:
        """The batches of an epoch from `first_batch` on."""
        order = np.asarray(self._order_of_all(epoch))
        composed = self._composer.compose(self._shape_of[order], self.drop_last)
        starts, lengths = composed.share(self.rank, self.world_size)
        samples = order[_joined(composed.places, starts, lengths)]
        shapes = self.shapes[composed.shapes][:, ::-1]
        return ShapePlan(samples, np.concatenate([[0], np.cumsum(lengths)]), shapes, first_batch)

    @property
    def _composer(self) -> Composer:
        return self._composed_once[0]

    @cached_property
    def _composed_once(self) -> tuple[Composer, int]:
        """The shapes that need the fewest pixels, and the batches per epoch; many shapes leave many pages over."""
        found = []
        for limit in range(1 if self.count < MANY_PAGES else self.max_shapes, self.max_shapes + 1):
            composer = Composer(choose_shapes(self.sizes, limit), self.batch_size, self.pixels, self.world_size)
            shape_of = smallest_holding(composer.shapes, self.sizes)[: self._used]
            composed = composer.compose(shape_of, self.drop_last)
            area = composer.shapes.prod(axis=1)[composed.shapes] * composed.lengths
            # With pixels, the last pages may be left out: what counts is the area per page.
            found.append((float(area.sum()) / max(1, composed.lengths.sum()), composer, len(composed.shapes)))
        return min(found, key=lambda each: each[0])[1:]

    @cached_property
    def _shape_of(self) -> Numbers:
        return smallest_holding(self.shapes, self.sizes)

    @property
    def _used(self) -> int:
        """How many samples of the order are used: with `drop_last`, as many as fill batches of one size."""
        size = self.batch_size * self.world_size
        return self.count // size * size if self.drop_last and self.pixels is None else self.count

    def _order_of_all(self, epoch: int) -> Order | range:
        return super()._order_of_all(epoch)[: self._used]


class ShapeBatchSampler(ShapeBatches):
    """The batches of pages that keep their shape, for torch's own DataLoader.

    `DataLoader(dataset, batch_sampler=ShapeBatchSampler(dataset, 8, shuffle=True), collate_fn=DBCollateFN())`; call
    `set_epoch` of both dataset and sampler before every epoch. `ocr.Loader` does all of it by itself.
    """

    def __init__(
        self,
        dataset: HasPageShapes,
        batch_size: int = 16,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        batch_shapes: int = MAX_SHAPES,
        batch_pixels: int | None = None,
    ) -> None:
        if dataset.padding is None:
            raise ConfigError(
                'ShapeBatchSampler is for pages that keep their shape: put Letterbox(size, shape="page") into the '
                "transforms, or leave the batches to DataLoader",
                setting="ShapeBatchSampler.dataset",
            )
        rank, world_size = rank_and_world_size(rank, world_size)
        super().__init__(
            dataset.planned_sizes(),
            batch_size,
            shapes=batch_shapes,
            pixels=batch_pixels,
            order=dataset.epoch_order if isinstance(dataset, ShardedPages) else None,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )


class ShapePlan(BatchPlan):
    """The batches of one pass, each with its shape."""

    def __init__(self, samples: Order, starts: Numbers, shapes_hw: Sizes, first_batch: int = 0) -> None:
        super().__init__(samples, len(shapes_hw), None, first_batch)
        self._starts, self._shapes = starts, shapes_hw

    def __next__(self) -> ShapedBatch:
        batch = ShapedBatch(super().__next__())
        height, width = self._shapes[self._next - 1].tolist()
        batch.shape = height, width
        return batch

    def _start(self, batch: int) -> int:
        return int(self._starts[min(batch, len(self._starts) - 1)])


class Composed(NamedTuple):
    """The batches of all ranks: which places of the order are in each."""

    places: Numbers
    """All of them, batch by batch."""
    lengths: Numbers
    shapes: Numbers
    """The number of each batch's shape."""

    def share(self, rank: int, world_size: int) -> tuple[Numbers, Numbers]:
        """Where one rank's part of each batch starts, and its length."""
        each, more = np.divmod(self.lengths, world_size)
        starts = np.cumsum(self.lengths) - self.lengths + rank * each + np.minimum(rank, more)
        return starts, each + (rank < more)


class Composer:
    """Makes batches of one shape from places in an order."""

    def __init__(self, shapes: Sizes, batch_size: int, pixels: int | None, world_size: int) -> None:
        self.shapes, self.world_size = shapes, world_size
        pages = batch_size if pixels is None else np.maximum(1, pixels // shapes.prod(axis=1))
        self.pages: list[int] = np.broadcast_to(pages * world_size, len(shapes)).tolist()
        """Pages of each shape that all ranks take at a time."""
        holds = np.all(shapes[:, None] <= shapes, axis=2)
        self.larger = [next(iter(np.flatnonzero(row[n + 1 :]) + n + 1), None) for n, row in enumerate(holds)]
        """The next larger shape that holds all pages of a shape; None for the last one, which holds all."""

    def compose(self, shape_of: Numbers, drop_last: bool) -> Composed:
        """The batches of an order in which places have these shapes; a batch comes when its last place does."""
        parts: list[Composed] = []
        carried: list[list[Numbers]] = [[] for _ in self.shapes]
        rest = np.zeros(0, dtype=np.int64)
        for number, size in enumerate(self.pages):
            own = np.flatnonzero(shape_of == number)
            whole = len(own) // size * size
            left = np.concatenate([*carried[number], own[whole:]])
            # Every rank needs a page of its own.
            partial = not drop_last and len(left) % size >= self.world_size
            taken = len(left) if partial else len(left) // size * size
            parts += [_cut(own[:whole], size, number), _cut(left[:taken], size, number)]
            rest, larger = left[taken:], self.larger[number]
            if larger is not None:
                carried[larger].append(rest)
        together = _in_order(_together(parts))
        return together if drop_last or not len(rest) else self._with_rest(together, rest)

    def _with_rest(self, composed: Composed, rest: Numbers) -> Composed:
        """Fewer pages than ranks are left: the last batch gets them."""
        if not len(composed.lengths):
            return composed
        composed.lengths[-1] += len(rest)
        composed.shapes[-1] = len(self.shapes) - 1
        return composed._replace(places=np.concatenate([composed.places, rest]))


def _cut(places: Numbers, size: int, shape: int) -> Composed:
    """Batches of neighbouring places; the last one may have fewer."""
    count = -(-len(places) // size)
    lengths = np.full(count, size, dtype=np.int64)
    if count:
        lengths[-1] = len(places) - (count - 1) * size
    return Composed(places, lengths, np.full(count, shape, dtype=np.int64))


def _together(parts: list[Composed]) -> Composed:
    return Composed(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _in_order(composed: Composed) -> Composed:
    """Sorted by the last place of each batch."""
    places, lengths, shapes = composed
    if not len(lengths):
        return composed
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(np.maximum.reduceat(places, starts), kind="stable")
    return Composed(_joined(places, starts[order], lengths[order]), lengths[order], shapes[order])


def _joined(values: Numbers, starts: Numbers, lengths: Numbers) -> Numbers:
    """Pieces of an array, one after the other.

    >>> _joined(np.arange(9), np.array([6, 0]), np.array([2, 3])).tolist()
    [6, 7, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    joined: Numbers = values[np.repeat(starts - before, lengths) + np.arange(lengths.sum())]
    return joined
