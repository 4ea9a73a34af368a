"""loader: batches of a dataset in the order of `(seed, epoch)`, made ahead by threads or processes."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import torch

from ocr.checks import check_choice, check_integer
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.loader.batch_maker import Collate, OwnCollate, Pending, choose_maker
from ocr.loader.order import ORDERS, BatchPlan, EpochBatches, OrderSettings, Pass, block_order, rank_and_world_size
from ocr.loader.process_engine import ProcessEngine
from ocr.loader.protocol import (
    HasEpochs,
    HasPageShapes,
    ItemDataset,
    LoadableDataset,
    MayPad,
    Pages,
    ReadsAhead,
    ShardedPages,
    StreamedPages,
)
from ocr.loader.shape_batches import MAX_SHAPES, ShapeBatches, ShapeSettings
from ocr.loader.stream_order import StreamBatches
from ocr.loader.worker_pool import WorkerPool
from ocr.pipeline.batch import Batch
from ocr.pipeline.device import Arrival

log = logging.getLogger(__name__)
ENGINES = ("threads", "processes")
REPORT_SECONDS = 30.0


class Loader:
    """The batches of a dataset; every pass is the next epoch, also after one that was broken off, unless `set_epoch` or
    a loaded state says another.

    `engine="threads"`: worker threads write each sample straight into its slot of a batch, or hand out batches of the
    cache without a copy. `engine="processes"`: torch's DataLoader with the same samples, for transforms that hold the
    GIL; `settings` are its own. With `device`, batches arrive there, normalised, while the model is busy.

    Pages that keep their shape (`Letterbox(shape="page")`) come in batches of at most `batch_shapes` different shapes,
    each of `batch_size` pages or, with `batch_pixels`, of as many pages as fit into so many pixels.

    `order="blocks"` shuffles blocks of neighbouring pages, for caches larger than memory on disks that seek.

    The names of torch's DataLoader work with both engines: `prefetch_factor` is `batches_ahead`, and
    `persistent_workers` has no effect on threads, which start in microseconds.
    """

    def __init__(
        self,
        dataset: LoadableDataset,
        batch_size: int = 16,
        num_workers: int = 2,
        engine: str = "threads",
        shuffle: bool = False,
        seed: int = 0,
        *,
        drop_last: bool = False,
        batches_ahead: int = 2,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        order: str = "shuffle",
        batch_shapes: int = MAX_SHAPES,
        batch_pixels: int | None = None,
        collate_fn: Collate | None = None,
        device: torch.device | str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **settings: Any,
    ) -> None:
        ahead = batches_ahead if prefetch_factor is None else prefetch_factor
        _check_settings(dataset, engine, num_workers, ahead, settings)
        _check_order(dataset, order)
        self.dataset, self.engine, self.num_workers, self.batches_ahead = dataset, engine, num_workers, ahead
        # Once: asking for a protocol takes 50 microseconds, while the first batch is waited for.
        self._with_epochs = dataset if isinstance(dataset, HasEpochs) else None
        self._reading_ahead = dataset if isinstance(dataset, ReadsAhead) else None
        self._sharded = dataset if isinstance(dataset, ShardedPages) else None
        rank, world_size = rank_and_world_size(rank, world_size)
        self.batch_sampler = _choose_batches(
            dataset,
            batch_size,
            order,
            {"shapes": batch_shapes, "pixels": batch_pixels},
            {"shuffle": shuffle, "drop_last": drop_last, "seed": seed, "rank": rank, "world_size": world_size},
        )
        normalize = None
        if isinstance(dataset, Pages):
            normalize = dataset.transform.normalization
            warm_up(only_loading=True)  # Now, so that the first batch does not wait for it.
        self._arrival = Arrival(normalize, device) if device is not None else None
        finish = self._arrival.bring if self._arrival is not None else None
        self._maker = choose_maker(dataset, collate_fn, finish)
        self._processes: ProcessEngine | None = None
        if engine == "processes":
            settings |= {"prefetch_factor": ahead, "persistent_workers": persistent_workers}
            collate_items = collate_fn or OwnCollate(dataset)
            self._processes = ProcessEngine(dataset, collate_items, finish, num_workers, **settings)

    @property
    def batch_size(self) -> int:
        """Samples per batch, on this rank."""
        return self.batch_sampler.batch_size

    @property
    def batches(self) -> int | None:
        """Batches per epoch; None if unknown."""
        return len(self.batch_sampler) if isinstance(self.batch_sampler, EpochBatches) else None

    def __len__(self) -> int:
        if (batches := self.batches) is None:
            raise TypeError("the number of batches is unknown: the shards have no index")
        return batches

    def __iter__(self) -> Iterator[Batch | None]:
        current = self.batch_sampler.start_pass()
        first = current.done
        if self._with_epochs is not None:
            self._with_epochs.set_epoch(current.epoch)
        try:
            for batch in self._pass(current):
                current.done += 1
                yield self._arrival.receive(batch) if self._arrival is not None and batch is not None else batch
        finally:
            current.running = False
        self.batch_sampler.end_pass(current)
        if first and current.done == first:
            # A stream was resumed after its last batch.
            yield from self

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass."""
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """The epoch of the latest pass, and how many of its batches were handed out."""
        epoch, done = self.batch_sampler.position
        return {"epoch": epoch, "batches": done, **self._batch_of_all_ranks}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue with the batch after those of the state, with any number of workers.

        The middle of an epoch needs the batch size and the number of ranks of the state: others deal out pages
        differently, so some would be lost and others repeated.
        """
        here = self._batch_of_all_ranks
        for name in ("epoch", "batches"):
            check_integer(f"{name} of the state", state.get(name))
        saved = {name: state.get(name, here[name]) for name in here}
        done = state["batches"]
        if done and saved != here:
            shown, given = (" and ".join(f"{name}={each[name]}" for name in here) for each in (saved, here))
            raise ConfigError(
                f"the state was saved after {done} batches of epoch {state['epoch']} with {shown}, but the loader has "
                f"{given}: pages would be lost or repeated. Resume with those of the state, or after an epoch",
                setting=next(name for name in here if saved[name] != here[name]),
                value=here,
            )
        self.batch_sampler.resume(state["epoch"], state["batches"])

    @property
    def _batch_of_all_ranks(self) -> dict[str, int]:
        batches = self.batch_sampler
        state = {"batch_size": batches.batch_size, "world_size": batches.world_size}
        if isinstance(batches, ShapeBatches):
            state |= {"batch_shapes": batches.max_shapes, "batch_pixels": batches.pixels or 0}
        return state

    def __repr__(self) -> str:
        count = "unknown number of" if self.batches is None else self.batches
        shown = f"batch_size={self.batch_size}, num_workers={self.num_workers}, engine={self.engine!r}"
        return f"Loader({count} batches, {shown}) of {self.dataset!r}"

    def _pass(self, current: Pass) -> Iterator[Batch | None]:
        plan = self._plan(current)
        if self.engine == "threads" and self.num_workers:
            yield from self._from_threads(plan, current.epoch)
            return
        if self._processes is not None:
            batches = self._processes.batches(plan, current.epoch)
        else:
            batches = self._from_here(plan, current.epoch)
        last = self.batches
        with closing(batches):
            for done, batch in enumerate(batches, current.done + 1):
                # Not after the loop: a consumer that knows the number of batches does not ask for one more.
                if done == last:
                    self._maker.end_pass()
                yield batch

    def _from_threads(self, plan: Iterator[list[int]], epoch: int) -> Iterator[Batch | None]:
        batches = self.batch_sampler
        viewable = batches if isinstance(batches, EpochBatches) and not isinstance(batches, ShapeBatches) else None
        following = viewable.first if viewable is not None and not viewable.shuffle else None
        ahead = self.batches_ahead
        pool = WorkerPool(plan, self._maker, self.num_workers, ahead, REPORT_SECONDS, following, epoch)
        try:
            yield from pool.batches()
        finally:
            pool.close()

    def _plan(self, current: Pass) -> Iterator[list[int]]:
        """The samples of each batch; shards that must be fetched are announced, and what is not in memory."""
        batches = self.batch_sampler.batches(current.epoch, current.done)
        if isinstance(batches, BatchPlan) and self._reading_ahead is not None:
            batches.announce = self._reading_ahead.read_ahead(batches.samples)
        if isinstance(batches, BatchPlan) and self._sharded is not None:
            self._sharded.expect(batches.samples)
        return batches

    def _from_here(self, plan: Iterator[list[int]], epoch: int) -> Generator[Batch | None]:
        for indices in plan:
            pending = Pending(indices, epoch)
            if not self._maker.begin(pending):
                for position in range(len(indices)):
                    self._maker.make(pending, position)
            yield pending.batch


def _check_settings(
    dataset: LoadableDataset, engine: str, num_workers: int, batches_ahead: int, settings: dict[str, Any]
) -> None:
    check_choice("data.engine", engine, ENGINES)
    check_integer("data.num_workers", num_workers)
    check_integer("data.batches_ahead", batches_ahead, 1)
    if not isinstance(dataset, ItemDataset | StreamedPages):
        raise ConfigError(
            f"Loader of {type(dataset).__name__}: a dataset must have __len__ and __getitem__. Leave a stream to "
            "torch's DataLoader",
            setting="dataset",
            value=type(dataset).__name__,
        )
    if own := [name for name in settings if name in ("sampler", "batch_sampler")]:
        raise ConfigError(
            f"{own[0]}: the order of a Loader is a function of (seed, epoch). Leave it out, and pass the samples that "
            "you want: torch.utils.data.Subset(dataset, indices)",
            setting=own[0],
            value=settings[own[0]],
        )
    if engine == "threads" and settings:
        raise ConfigError(
            f"{', '.join(settings)}: a setting of torch's DataLoader. Leave it out, or set data.engine=processes",
            setting=next(iter(settings)),
            value=next(iter(settings.values())),
        )
    if engine == "processes" and isinstance(dataset, StreamedPages):
        problem = "data.engine=processes: shards without an index are streamed to threads only"
        raise ConfigError(problem, setting="data.engine", value=engine)


def _check_shaping(dataset: LoadableDataset, keeps_shape: bool, shaping: ShapeSettings) -> None:
    if isinstance(dataset, StreamedPages) and isinstance(dataset, MayPad) and dataset.padding is not None:
        log.warning(
            "transforms.letterbox.shape=page: pages of shards without an index come in batches as they arrive, padded "
            "to the largest. With an index, which ocr convert writes, similar pages share a batch"
        )
    if not keeps_shape and shaping["pixels"] is not None:
        raise ConfigError(
            f"data.batch_pixels={shaping['pixels']}: all pages have one size, so batch_size says the same. Leave it "
            "out, or set transforms.letterbox.shape=page",
            setting="data.batch_pixels",
            value=shaping["pixels"],
        )


def _check_order(dataset: LoadableDataset, order: str) -> None:
    check_choice("data.order", order, ORDERS)
    if order == "blocks" and isinstance(dataset, ShardedPages | StreamedPages):
        raise ConfigError(
            "data.order=blocks is for pages in a folder; shards are blocks already. Set shards.shuffle_buffer=1024",
            setting="data.order",
            value=order,
        )


def _choose_batches(
    dataset: LoadableDataset, batch_size: int, order: str, shaping: ShapeSettings, settings: OrderSettings
) -> EpochBatches | StreamBatches:
    shaped = dataset if isinstance(dataset, HasPageShapes) and dataset.padding is not None else None
    _check_shaping(dataset, shaped is not None, shaping)
    if isinstance(dataset, StreamedPages):
        return StreamBatches(dataset.handles, batch_size, forget=dataset.forget, **settings)
    own = dataset.epoch_order if isinstance(dataset, ShardedPages) else None
    if order == "blocks":
        own = partial(block_order, len(dataset))
    if shaped is not None:
        return ShapeBatches(shaped.planned_sizes(), batch_size, order=own, **shaping, **settings)
    return EpochBatches(len(dataset), batch_size, order=own, **settings)
