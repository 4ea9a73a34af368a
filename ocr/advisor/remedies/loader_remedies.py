"""What would make any torch DataLoader faster: workers, prefetching, threads, a cache; each built to be tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, RandomSampler

from ocr.advisor.measure.any_loader import FROM_CACHE, LoaderCosts, reads_batches, takes_every_item
from ocr.advisor.measure.steady import Step, steady_seconds
from ocr.advisor.model.prefetch import epoch_seconds, uneven_batches
from ocr.advisor.model.queueing import Demand, Pipeline, Prediction, beside_workers, contended
from ocr.advisor.remedies.advice import Remedy
from ocr.advisor.remedies.batch_reader import FETCHES, ThreadedReader
from ocr.cache.items import cached
from ocr.loader.loader import Loader

Build = Callable[[], Iterable[Any]]
AHEAD = 8
"""Batches ahead per worker that are tried; torch's default is 2."""


class LoaderRemedies:
    """The loader as it is, and what else could be done with the same dataset, collate function and step."""

    def __init__(self, loader: DataLoader[Any], costs: LoaderCosts, cores: int, step: Step | None = None) -> None:
        self.loader, self.costs, self.cores, self.step = loader, costs, cores, step
        self.builds: dict[str, Build] = {}
        """How to make the loader of each remedy, to try it; caches need a folder."""
        self._tried: dict[tuple[bool, int], float] = {}
        """Processes or threads, and how many: how many times as long a batch takes as the queueing model says."""
        self.present = self._present()

    def all(self) -> list[Remedy]:
        """Best first."""
        of_torch = [*self._workers(), *self._persistent(), *self._prefetch(), *self._batch_wise()]
        # What only some items are drawn for, or some several times, is no epoch of our loader.
        of_ours = [*self._threads(), *self._cached()] if takes_every_item(self.loader) else []
        found = [*of_torch, *of_ours]
        return sorted(found, key=lambda remedy: (-round(remedy.gain, 2), len(remedy.overrides)))

    def _present(self) -> Remedy:
        workers = self.loader.num_workers
        pipeline = self._pipeline(workers, processes=workers > 0, starts=not self.loader.persistent_workers)
        self.builds["present"] = lambda: self.loader
        found = self._predict(pipeline)
        return Remedy("present", (), "", found, found, 1.0)

    def _workers(self) -> list[Remedy]:
        """Other numbers of worker processes, which stay from one epoch to the next; or none."""
        if self.costs.sending.transfer is None:
            return []
        item = self.costs.dataset
        # More workers than cores can wait at the same time, but not compute.
        more = {2 * self.cores} if item.cpu_seconds < item.seconds / 2 else set()
        counts = sorted(({0, 1, self.cores} | more) - {self.loader.num_workers})
        return [
            self._remedy(
                f"{count or 'no'} worker process{'es' * (count != 1)}",
                (f"num_workers={count}", *["persistent_workers=True"] * (count > 0)),
                self._pipeline(count, processes=count > 0),
                lambda count=count: self._like(count),  # type: ignore[misc]
                kept_bytes=count * self.costs.sending.worker_bytes,
            )
            for count in counts
        ]

    def _persistent(self) -> list[Remedy]:
        workers = self.loader.num_workers
        if not workers or self.loader.persistent_workers:
            return []
        about = f"starting the workers takes {self.costs.sending.start_seconds:.2f} s of every epoch"
        pipeline = self._pipeline(workers, processes=True)
        build = lambda: self._like(workers)  # noqa: E731
        return [self._remedy("workers that stay", ("persistent_workers=True",), pipeline, build, about)]

    def _prefetch(self) -> list[Remedy]:
        """More batches ahead, which make up for those that take longer than others."""
        workers, costs, loader = self.loader.num_workers, self.costs, self.loader
        ahead = loader.prefetch_factor or 2
        if not workers or ahead >= AHEAD or not costs.item_seconds:
            return []
        batches = uneven_batches(costs.item_seconds, costs.items, costs.batch_size)
        now, then = (epoch_seconds(batches, workers, each, costs.consumer.step_seconds) for each in (ahead, AHEAD))
        build = lambda: self._like(workers, prefetch_factor=AHEAD, persistent_workers=loader.persistent_workers)  # noqa: E731
        remedy = self._remedy(
            f"{AHEAD} batches ahead",
            (f"prefetch_factor={AHEAD}",),
            self.present.later.pipeline,
            build,
            kept_bytes=(AHEAD - ahead) * workers * costs.batch_bytes,
        )
        later = replace(remedy.later, epoch_seconds=remedy.later.epoch_seconds * then / now)
        return [replace(remedy, later=later, first=later, gain=now / then)]

    def _batch_wise(self) -> list[Remedy]:
        """`__getitems__` that reads the items of a batch in threads, for a dataset that waits for them."""
        item = self.costs.dataset
        if reads_batches(self.loader.dataset) or item.serial_seconds or item.cpu_seconds > item.seconds / 2:
            return []
        threads = min(FETCHES, self.costs.batch_size)
        seconds = item.cpu_seconds + (item.seconds - item.cpu_seconds) / threads
        workers = self.loader.num_workers
        starts = not self.loader.persistent_workers
        pipeline = self._pipeline(workers, workers > 0, starts, replace(item, seconds=seconds))
        build = lambda: self._like(workers, ThreadedReader(self.loader.dataset), persistent_workers=not starts)  # noqa: E731
        change = (f"__getitems__ of the dataset: the items of a batch in {threads} threads",)
        return [self._remedy("batch-wise reading", change, pipeline, build, "the dataset waits more than it computes")]

    def _threads(self) -> list[Remedy]:
        """Threads of `ocr.Loader`: nothing is started or sent."""
        return [
            self._remedy(
                f"{count} thread{'s' * (count > 1)}",
                ("from ocr import Loader;", f"Loader(dataset, batch_size, num_workers={count}, collate_fn=...)"),
                self._pipeline(count, processes=False, dataset=self.costs.one_by_one),
                lambda count=count: self._own(self.loader.dataset, count),  # type: ignore[misc]
            )
            for count in sorted({1, self.cores})
        ]

    def _cached(self) -> list[Remedy]:
        """The items of a dataset without anything random are made once, for all processes and runs."""
        if self.costs.cached is None:
            return []
        found = []
        for count in sorted({1, self.cores}):
            pipeline = self._pipeline(count, processes=False, dataset=replace(self.costs.cached, name=FROM_CACHE))
            remedy = self._remedy(
                f"cache, {count} thread{'s' * (count > 1)}",
                (
                    "from ocr import Loader, cached;",
                    "dataset = cached(dataset, key=...);",
                    f"Loader(..., num_workers={count}, collate_fn=...)",
                ),
                pipeline,
                kept_bytes=int(self.costs.kept_bytes * len(self.loader.dataset)),  # type: ignore[arg-type]
            )
            first = self._predict(self._pipeline(count, processes=False, dataset=self.costs.one_by_one))
            found.append(replace(remedy, first=first))
        return found

    def build(self, remedy: Remedy, folder: Path) -> Iterable[Any]:
        """The loader of a remedy; one that caches does so in this folder, and its first epoch fills the cache."""
        if (build := self.builds.get(remedy.name)) is not None:
            return build()
        dataset: Any = self.loader.dataset
        return self._own(cached(dataset, str, folder=folder), remedy.later.pipeline.workers)

    def _remedy(
        self,
        name: str,
        overrides: tuple[str, ...],
        pipeline: Pipeline,
        build: Build | None = None,
        about: str = "",
        kept_bytes: int = 0,
    ) -> Remedy:
        if build is not None:
            self.builds[name] = build
        later = self._predict(pipeline)
        gain = self.present.later.epoch_seconds / later.epoch_seconds
        return Remedy(name, overrides, about, later, later, gain, kept_bytes)

    def _predict(self, pipeline: Pipeline) -> Prediction:
        """What the queueing model says, corrected by what so many workers took for a few batches."""
        found = pipeline.predict()
        extra = found.batch_seconds * (self._trial(pipeline.workers, pipeline.processes) - 1)
        return replace(found, epoch_seconds=found.epoch_seconds + pipeline.steps * extra)

    def _trial(self, workers: int, processes: bool) -> float:
        """Batches of the dataset as it is, with the step: workers and the step hold each other up in ways of their own.

        1 if nothing overlaps, or if the step takes most of the time anyway.
        """
        key = (processes, workers)
        if not workers or key in self._tried:
            return self._tried.get(key, 1.0)
        dataset = self.costs.dataset if processes else self.costs.one_by_one
        expected = self._pipeline(workers, processes, dataset=dataset).predict()
        if expected.limits["model"] > 2 * expected.loading_seconds:
            return 1.0
        batches = self._like(workers) if processes else self._own(self.loader.dataset, workers)
        try:
            seconds = steady_seconds(batches, self.step, workers, expected.batch_seconds)
        except (RuntimeError, OSError):  # Worker processes cannot be started here: told where they are predicted.
            seconds = None
        self._tried[key] = 1.0 if seconds is None else seconds / expected.batch_seconds
        return self._tried[key]

    def _pipeline(self, workers: int, processes: bool, starts: bool = False, dataset: Demand | None = None) -> Pipeline:
        costs, sending = self.costs, self.costs.sending
        demands = [dataset or costs.dataset, costs.collate]
        is_sent = processes and workers > 0
        if is_sent:
            # Threads slow each other down in other ways than processes do.
            demands = [contended(demand, sending.contention) for demand in demands]
        if is_sent and sending.transfer is not None:
            demands.append(sending.transfer)
        if costs.pinning is not None:
            demands.append(costs.pinning)
        start = sending.start_seconds if is_sent and starts else 0.0
        shape = (costs.items, costs.batch_size, workers, self.cores, is_sent, start)
        pipeline = Pipeline(tuple(demands), costs.consumer, *shape)
        return replace(pipeline, consumer=beside_workers(pipeline, sending.contention))

    def _like(self, workers: int, dataset: Any = None, **changes: Any) -> Iterable[Any]:
        """The same DataLoader with other workers, or as `changes` say."""
        given = self.loader
        settings: dict[str, Any] = {
            "batch_sampler": given.batch_sampler,
            "num_workers": workers,
            "persistent_workers": workers > 0,
            "prefetch_factor": given.prefetch_factor if workers else None,
            "collate_fn": given.collate_fn,
            "pin_memory": given.pin_memory,
            "worker_init_fn": given.worker_init_fn,
            "multiprocessing_context": given.multiprocessing_context if workers else None,
        }
        return DataLoader(given.dataset if dataset is None else dataset, **settings | changes)

    def _own(self, dataset: Any, workers: int) -> Iterable[Any]:
        batches: Any = self.loader.batch_sampler
        settings: dict[str, Any] = {"shuffle": isinstance(batches.sampler, RandomSampler)}
        settings |= {"drop_last": batches.drop_last, "collate_fn": self.loader.collate_fn}
        return Loader(dataset, self.costs.batch_size, workers, **settings)
