"""shapes: batches of pages that keep their own shape. Pages of similar shape share a batch.

Batches have few shapes, chosen so that pages are padded as little as so few allow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.loader.order import BatchPlan, EpochBatches, Order, OrderSettings, rank_and_world_size
from ocr.pipeline.path import path_of
from ocr.pipeline.sample import STRIDE
from ocr.pipeline.stage import Sizes

Numbers = NDArray[np.signedinteger[Any]]
_SIDE = 1 << 31
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
        dataset: Any,
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
        path = path_of(dataset)
        if path is None or path.padding is None:
            raise ConfigError(
                'ShapeBatchSampler is for pages that keep their shape: put Letterbox(size, shape="page") into the '
                "transforms, or leave the batches to DataLoader",
                setting="ShapeBatchSampler.dataset",
            )
        rank, world_size = rank_and_world_size(rank, world_size)
        super().__init__(
            path.planned_sizes,
            batch_size,
            shapes=batch_shapes,
            pixels=batch_pixels,
            order=getattr(dataset, "epoch_order", None),
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


def choose_shapes(sizes: Sizes, limit: int) -> Sizes:
    """At most `limit` (width, height), multiples of 32, that hold pages of these sizes with the least padding.

    The smallest come first; the last one holds every page. A dynamic program over the distinct sizes, sorted by
    aspect: each shape serves a run of them.

    >>> choose_shapes(np.array([[320, 640], [300, 640], [470, 640], [640, 640]]), 2).tolist()
    [[320, 640], [640, 640]]
    """
    steps, counts = np.unique(-(-sizes // STRIDE) @ [_SIDE, 1], return_counts=True)
    found = np.stack(np.divmod(steps, _SIDE), axis=1) * STRIDE
    by_aspect = np.lexsort((found.prod(axis=1), found[:, 0] / found[:, 1]))
    found, counts = found[by_aspect], counts[by_aspect]
    runs = _best_runs(found, counts, limit)
    largest = found.max(axis=0)
    if not any((found[first:last].max(axis=0) == largest).all() for first, last in runs):
        # Pages that are left over, tall and wide ones, need a shape that holds both.
        runs = _best_runs(found, counts, limit - 1) if limit > 1 else [(0, len(found))]
    shapes = np.array([*(found[first:last].max(axis=0) for first, last in runs), largest])
    shapes = np.unique(shapes, axis=0)
    return shapes[np.lexsort((shapes[:, 0], shapes.prod(axis=1)))]


def smallest_holding(shapes: Sizes, sizes: Sizes) -> Numbers:
    """The number of the smallest shape that holds each page, of shapes in the order of `choose_shapes`.

    >>> smallest_holding(np.array([[320, 640], [640, 640]]), np.array([[300, 640], [640, 64]])).tolist()
    [0, 1]
    """
    number = np.full(len(sizes), len(shapes) - 1, dtype=np.int64)
    for shape in range(len(shapes) - 2, -1, -1):
        number[(sizes <= shapes[shape]).all(axis=1)] = shape
    return number


def _best_runs(found: Sizes, counts: Numbers, limit: int) -> list[tuple[int, int]]:
    """The runs of sizes that share a shape: at most `limit`, with the fewest pixels in all."""
    total = len(found)
    pages = np.concatenate([[0], np.cumsum(counts)])
    best = np.full(total + 1, np.inf)
    best[0] = 0
    starts: list[Numbers] = []
    for _ in range(min(limit, total)):
        reached, start = best.copy(), np.full(total + 1, -1)
        for last in range(1, total + 1):
            # From the last size backwards: the largest sides of every run that ends here.
            area = np.maximum.accumulate(found[last - 1 :: -1], axis=0).prod(axis=1)
            pixels = best[:last] + area[::-1] * (pages[last] - pages[:last])
            first = int(np.argmin(pixels))
            if pixels[first] < reached[last]:
                reached[last], start[last] = pixels[first], first
        starts.append(start)
        best = reached
    runs: list[tuple[int, int]] = []
    last = total
    for start in reversed(starts):
        # No run starts here if fewer shapes serve as well.
        if last and start[last] >= 0:
            runs.append((int(start[last]), last))
            last = int(start[last])
    return runs[::-1]
