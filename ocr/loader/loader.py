"""loader: batches of a dataset in the order of `(seed, epoch)`, made ahead by threads or processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import torch
from torch.utils.data import DataLoader

from ocr.errors import ConfigError, near_names
from ocr.loader.batch_maker import BatchMaker, Pending
from ocr.loader.order import EpochBatches
from ocr.loader.stream_order import StreamBatches
from ocr.loader.worker_pool import WorkerPool
from ocr.pipeline.batch import Batch, Item, collate, same_maps
from ocr.pipeline.device import Arrival
from ocr.pipeline.targets import Targets

ENGINES = ("threads", "processes")
REPORT_SECONDS = 30.0


class Loader:
    """The batches of a dataset; every pass is the next epoch, unless `set_epoch` says another.

    `engine="threads"`: worker threads write each sample straight into its slot of a batch, or hand out batches of the
    cache as they lie there. `engine="processes"`: torch's DataLoader with the same samples, for transforms that hold
    the GIL; `settings` are its own. With `device`, batches arrive there, normalised, while the model is busy.
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
        collate_fn: Callable[[list[Item | None]], Batch | None] | None = None,
        device: torch.device | str | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        **settings: Any,
    ) -> None:
        if engine not in ENGINES:
            raise ConfigError(f"data.engine={engine!r}: {near_names(str(engine), list(ENGINES))}")
        if engine == "threads" and settings:
            raise ConfigError(
                f"{', '.join(settings)}: a setting of torch's DataLoader. Leave it out, or set data.engine=processes"
            )
        for name, value, least in (("num_workers", num_workers, 0), ("batches_ahead", batches_ahead, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"data.{name}={value!r} must be a whole number, {least} or more")
        here = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.dataset, self.engine, self.num_workers, self.batches_ahead = dataset, engine, num_workers, batches_ahead
        order: dict[str, Any] = {
            "shuffle": shuffle,
            "drop_last": drop_last,
            "seed": seed,
            "rank": rank if rank is not None else torch.distributed.get_rank() if here else 0,
            "ranks": ranks if ranks is not None else torch.distributed.get_world_size() if here else 1,
        }
        self.batch_sampler: EpochBatches | StreamBatches
        if hasattr(dataset, "handles"):
            if engine == "processes":
                raise ConfigError("data.engine=processes: shards without an index are streamed to threads only")
            self.batch_sampler = StreamBatches(dataset.handles, batch_size, forget=dataset.forget, **order)
        else:
            own_order = getattr(dataset, "epoch_order", None)
            self.batch_sampler = EpochBatches(len(dataset), batch_size, order=own_order, **order)
        self._collate, self._settings = collate_fn, settings
        arrival = Arrival(dataset.transform.normalization, device) if device is not None else None
        self._arrival = arrival
        self._maker = BatchMaker(dataset, self._collate_items(), arrival.bring if arrival else None)
        self._processes: DataLoader[Any] | None = None
        self._done = 0

    @property
    def batch_size(self) -> int:
        """Samples a batch, on this rank."""
        return self.batch_sampler.batch_size

    @property
    def batches(self) -> int | None:
        """How many an epoch has; None where nobody knows."""
        return len(self.batch_sampler) if isinstance(self.batch_sampler, EpochBatches) else None

    def __len__(self) -> int:
        return len(self.batch_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch | None]:
        batches = self.batch_sampler
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(batches.epoch)
        self._done = batches.first_batch
        for batch in self._pass():
            self._done += 1
            yield self._arrival.receive(batch) if self._arrival is not None and batch is not None else batch
        self._done = 0
        batches.set_epoch(batches.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass."""
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches were handed out."""
        return {"epoch": self.batch_sampler.epoch, "batches": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on with the batch after those of the state, with any number of workers."""
        self.batch_sampler.epoch = state["epoch"]
        done, batches = state["batches"], self.batches
        self.batch_sampler.first_batch = done if batches is None else done % batches

    def __repr__(self) -> str:
        shown = f"batch_size={self.batch_size}, num_workers={self.num_workers}, engine={self.engine!r}"
        return f"Loader({len(self)} batches, {shown}) of {self.dataset!r}"

    def _pass(self) -> Iterator[Batch | None]:
        if self.engine == "threads" and self.num_workers:
            yield from self._from_threads()
            return
        batches = self._from_processes() if self.engine == "processes" else self._from_here()
        last = self.batches
        with closing(batches):
            for done, batch in enumerate(batches, self._done + 1):
                # Not behind the loop: who knows the number of batches does not ask for one more.
                if done == last:
                    self._maker.end_pass()
                yield batch

    def _from_threads(self) -> Iterator[Batch | None]:
        batches = self.batch_sampler
        following = batches.first if isinstance(batches, EpochBatches) and not batches.shuffle else None
        pool = WorkerPool(self._plan(), self._maker, self.num_workers, self.batches_ahead, REPORT_SECONDS, following)
        try:
            yield from pool.batches()
        finally:
            pool.close()

    def _plan(self) -> Iterator[list[int]]:
        """The samples of each batch; a dataset that fetches them hears of all."""
        if not isinstance(self.batch_sampler, EpochBatches):
            return iter(self.batch_sampler)
        plan = list(self.batch_sampler)
        if hasattr(self.dataset, "expect"):
            self.dataset.expect(plan)
        return iter(plan)

    def _from_here(self) -> Generator[Batch | None]:
        for indices in self._plan():
            pending = Pending(indices)
            if not self._maker.begin(pending):
                for position in range(len(indices)):
                    self._maker.make(pending, position)
            yield pending.batch

    def _from_processes(self) -> Generator[Batch | None]:
        if self._processes is None:
            function = self._collate or _OwnTargets(self.dataset)
            settings = {"prefetch_factor": self.batches_ahead, **self._settings} if self.num_workers else self._settings
            self._processes = DataLoader(
                self.dataset,
                batch_sampler=self.batch_sampler,
                num_workers=self.num_workers,
                collate_fn=function,
                **settings,
            )
        self._plan()
        passed = iter(self._processes)
        try:
            for batch in passed:
                yield self._arrival.bring(batch) if self._arrival is not None and batch is not None else batch
        finally:
            # An error keeps the iterator in its traceback, and with it the workers.
            if not self._processes.persistent_workers and hasattr(passed, "_shutdown_workers"):
                passed._shutdown_workers()

    def _collate_items(self) -> Callable[[list[Item | None]], Batch | None] | None:
        """None where the dataset writes into slots by itself, and its maps are what the collate function wants."""
        own: Targets | None = getattr(self.dataset, "targets", None)
        wanted = getattr(self._collate, "targets", None)
        if not hasattr(self.dataset, "write") or own is None:
            return self._collate or _OwnTargets(self.dataset)
        if self._collate is None or (isinstance(wanted, Targets) and same_maps(own, wanted)):
            return None
        return self._collate


class _OwnTargets:
    """Collate with the maps of the dataset itself."""

    def __init__(self, dataset: Any) -> None:
        self.targets: Targets = getattr(dataset, "targets", None) or Targets()

    def __call__(self, items: list[Item | None]) -> Batch | None:
        return collate(items, self.targets)
