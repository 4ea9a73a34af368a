"""loader: batches of a dataset in the order of `(seed, epoch)`, made ahead by threads or processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import torch

from ocr.checks import check_choice, check_integer
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.loader.buffers import BatchMaker, Collate, Finish, ItemBatches, PageBatches, Pending
from ocr.loader.order import EpochBatches, OrderSettings, Pass, rank_and_world_size
from ocr.loader.processes import ProcessEngine
from ocr.loader.shapes import MAX_SHAPES, ShapeBatches, ShapeSettings
from ocr.loader.workers import WorkerPool
from ocr.pipeline.batch import Batch, Item, collate, same_maps
from ocr.pipeline.device import Arrival
from ocr.pipeline.path import PagePath, path_of
from ocr.pipeline.targets import Targets

log = logging.getLogger(__name__)
ENGINES = ("threads", "processes")
REPORT_SECONDS = 30.0


class Loader:
    """The batches of a map-style dataset. Every pass is the next epoch, even after one that was interrupted, unless
    `set_epoch` or a loaded state says another.

    `engine="threads"`: worker threads take each page through its path, straight into its slot of a batch. Items of any
    other dataset are collated. `engine="processes"`: torch's DataLoader with the same samples, for transforms that hold
    the GIL; `settings` are its own. With `device`, batches arrive there, normalised, while the model is busy.

    Pages that keep their shape (`Letterbox(shape="page")`) come in batches of at most `batch_shapes` different shapes,
    each of `batch_size` pages or, with `batch_pixels`, of as many pages as fit into so many pixels.

    The names of torch's DataLoader work with both engines: `prefetch_factor` is `batches_ahead`, and
    `persistent_workers` has no effect on threads, which start in microseconds.
    """

    def __init__(
        self,
        dataset: Any,
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
        self.dataset, self.engine, self.num_workers, self.batches_ahead = dataset, engine, num_workers, ahead
        path = path_of(dataset)
        rank, world_size = rank_and_world_size(rank, world_size)
        self.batch_sampler = _choose_batches(
            dataset,
            path,
            batch_size,
            {"shapes": batch_shapes, "pixels": batch_pixels},
            {"shuffle": shuffle, "drop_last": drop_last, "seed": seed, "rank": rank, "world_size": world_size},
        )
        if path is not None:
            warm_up(only_loading=True)  # Now, so that the first batch does not wait for it.
        self._arrival = (
            Arrival(path.normalization if path is not None else None, device) if device is not None else None
        )
        finish = self._arrival.bring if self._arrival is not None else None
        collate_items = collate_fn or partial(_collate_pages, targets=path.drawn if path is not None else Targets())
        self._maker = self._batch_maker(path, collate_fn, collate_items, finish)
        self._processes: ProcessEngine | None = None
        if engine == "processes":
            settings |= {"prefetch_factor": ahead, "persistent_workers": persistent_workers}
            self._processes = ProcessEngine(dataset, collate_items, finish, num_workers, **settings)

    def _batch_maker(
        self, path: PagePath | None, given: Collate | None, collate_items: Collate, finish: Finish | None
    ) -> BatchMaker:
        """Pages are written into slots, unless the collate function needs other maps than the dataset draws."""
        if path is not None and (given is None or accepts_maps(given, path.drawn)):
            return PageBatches(path, finish)
        return ItemBatches(self.dataset, collate_items, finish)

    @property
    def batch_size(self) -> int:
        """Samples per batch, on this rank."""
        return self.batch_sampler.batch_size

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch | None]:
        current = self.batch_sampler.start_pass()
        _call(self.dataset, "set_epoch", current.epoch)
        try:
            for batch in self._pass(current):
                current.done += 1
                yield self._arrival.receive(batch) if self._arrival is not None and batch is not None else batch
        finally:
            current.running = False
        self.batch_sampler.end_pass(current)

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
        shown = f"batch_size={self.batch_size}, num_workers={self.num_workers}, engine={self.engine!r}"
        return f"Loader({len(self)} batches, {shown}) of {self.dataset!r}"

    def _pass(self, current: Pass) -> Iterator[Batch | None]:
        plan = self.batch_sampler.batches(current.epoch, current.done)
        _call(self.dataset, "expect", plan.samples)  # Shards that must be fetched.
        if self.engine == "threads" and self.num_workers:
            yield from self._from_threads(plan, current.epoch)
            return
        made = self._processes.batches(plan, current.epoch) if self._processes else self._from_here(plan, current.epoch)
        with closing(made):
            yield from made

    def _from_threads(self, plan: Iterator[list[int]], epoch: int) -> Iterator[Batch | None]:
        flush = getattr(self.dataset, "flush", lambda: None)
        pool = WorkerPool(plan, self._maker, self.num_workers, self.batches_ahead, REPORT_SECONDS, epoch, flush)
        try:
            yield from pool.batches()
        finally:
            pool.close()

    def _from_here(self, plan: Iterator[list[int]], epoch: int) -> Generator[Batch | None]:
        for indices in plan:
            pending = Pending(indices, epoch)
            for position in range(len(indices)):
                self._maker.make(pending, position)
            yield pending.batch
        _call(self.dataset, "flush")


def accepts_maps(collate_fn: object, targets: Targets) -> bool:
    """Whether a collate function would draw the same maps."""
    wanted = getattr(collate_fn, "targets", None)
    return isinstance(wanted, Targets) and same_maps(targets, wanted)


def _collate_pages(items: list[Item | None], targets: Targets) -> Batch | None:
    for item in items:
        if item is not None and not (isinstance(item, dict) and isinstance(item.get("image"), torch.Tensor)):
            raise ConfigError(
                f"an item is {type(item).__name__}, not a page with an image. Pass the function that makes a batch "
                "of items, such as collate_fn=torch.utils.data.default_collate",
                setting="collate_fn",
                value=type(item).__name__,
            )
    return collate(items, targets)


def _call(dataset: object, name: str, *arguments: Any) -> None:
    """Call what a dataset has; any dataset may lack it."""
    method: Callable[..., Any] | None = getattr(dataset, name, None)
    if callable(method):
        method(*arguments)


def _check_settings(dataset: Any, engine: str, num_workers: int, batches_ahead: int, settings: dict[str, Any]) -> None:
    check_choice("data.engine", engine, ENGINES)
    check_integer("data.num_workers", num_workers)
    check_integer("data.batches_ahead", batches_ahead, 1)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
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


def _choose_batches(
    dataset: Any, path: PagePath | None, batch_size: int, shaping: ShapeSettings, settings: OrderSettings
) -> EpochBatches:
    order = getattr(dataset, "epoch_order", None)
    if path is not None and path.padding is not None:
        return ShapeBatches(path.planned_sizes, batch_size, order=order, **shaping, **settings)
    if shaping["pixels"] is not None:
        raise ConfigError(
            f"data.batch_pixels={shaping['pixels']}: all pages have one size, so batch_size says the same. Leave it "
            "out, or set transforms.letterbox.shape=page",
            setting="data.batch_pixels",
            value=shaping["pixels"],
        )
    return EpochBatches(len(dataset), batch_size, order=order, **settings)
