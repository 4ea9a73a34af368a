"""What would make any torch DataLoader faster: workers, threads, a cache; each predicted, and built to be tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, RandomSampler

from ocr.advisor.measure.any_loader import FROM_CACHE, LoaderCosts
from ocr.advisor.model.queueing import Demand, Pipeline
from ocr.advisor.remedies.advice import Remedy
from ocr.cache.items import cached
from ocr.loader.loader import Loader

Build = Callable[[], Iterable[Any]]


class LoaderRemedies:
    """The loader as it is, and what else could be done with the same dataset, collate function and step."""

    def __init__(self, loader: DataLoader[Any], costs: LoaderCosts, cores: int) -> None:
        self.loader, self.costs, self.cores = loader, costs, cores
        self.builds: dict[str, Build] = {}
        """How to make the loader of each remedy, to try it; caches need a folder."""
        self.present = self._present()

    def all(self) -> list[Remedy]:
        """Best first."""
        found = [*self._workers(), *self._persistent(), *self._threads(), *self._cached()]
        return sorted(found, key=lambda remedy: (-round(remedy.gain, 2), len(remedy.overrides)))

    def _present(self) -> Remedy:
        workers = self.loader.num_workers
        pipeline = self._pipeline(workers, processes=workers > 0, starts=not self.loader.persistent_workers)
        self.builds["present"] = lambda: self.loader
        return Remedy("present", (), "", pipeline.predict(), pipeline.predict(), 1.0)

    def _workers(self) -> list[Remedy]:
        """Other numbers of worker processes, which stay from one epoch to the next."""
        if self.costs.transfer is None:
            return []
        item = self.costs.dataset
        # More workers than cores can wait at the same time, but not compute.
        more = {2 * self.cores} if item.cpu_seconds < item.seconds / 2 else set()
        counts = sorted(({1, self.cores} | more) - {self.loader.num_workers})
        return [
            self._remedy(
                f"{count} worker process{'es' * (count > 1)}",
                (f"num_workers={count}", "persistent_workers=True"),
                self._pipeline(count, processes=True),
                lambda count=count: self._like(self.loader.dataset, count),  # type: ignore[misc]
                kept_bytes=count * self.costs.worker_bytes,
            )
            for count in counts
        ]

    def _persistent(self) -> list[Remedy]:
        workers = self.loader.num_workers
        if not workers or self.loader.persistent_workers:
            return []
        about = f"starting the workers takes {self.costs.start_seconds:.2f} s of every epoch"
        pipeline = self._pipeline(workers, processes=True)
        build = lambda: self._like(self.loader.dataset, workers)  # noqa: E731
        return [self._remedy("workers that stay", ("persistent_workers=True",), pipeline, build, about)]

    def _threads(self) -> list[Remedy]:
        """Threads of `ocr.Loader`: nothing is started or sent."""
        return [
            self._remedy(
                f"{count} thread{'s' * (count > 1)}",
                (f"ocr.Loader(dataset, batch_size, num_workers={count}, collate_fn=...)",),
                self._pipeline(count, processes=False),
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
                ("ocr.cached(dataset, key=...)", f"ocr.Loader(..., num_workers={count}, collate_fn=...)"),
                pipeline,
                kept_bytes=int(self.costs.kept_bytes * len(self.loader.dataset)),  # type: ignore[arg-type]
            )
            first = self._pipeline(count, processes=False).predict()
            found.append(replace(remedy, first=first))
        return found

    def build_cached(self, remedy: Remedy, folder: Path) -> Iterable[Any]:
        """The loader of a remedy that caches, in this folder; its first epoch fills the cache."""
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
        later = pipeline.predict()
        gain = self.present.later.epoch_seconds / later.epoch_seconds
        return Remedy(name, overrides, about, later, later, gain, kept_bytes)

    def _pipeline(self, workers: int, processes: bool, starts: bool = False, dataset: Demand | None = None) -> Pipeline:
        costs = self.costs
        demands = [dataset or costs.dataset, costs.collate]
        if processes and workers and costs.transfer is not None:
            demands.append(costs.transfer)
        start = costs.start_seconds if processes and workers and starts else 0.0
        shape = (costs.items, costs.batch_size, workers, self.cores, processes and workers > 0, start)
        return Pipeline(tuple(demands), costs.consumer, *shape)

    def _like(self, dataset: Any, workers: int) -> Iterable[Any]:
        """The same DataLoader with other workers."""
        given = self.loader
        return DataLoader(
            dataset,
            batch_sampler=given.batch_sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=given.collate_fn,
            pin_memory=given.pin_memory,
            worker_init_fn=given.worker_init_fn,
            multiprocessing_context=given.multiprocessing_context if workers else None,
        )

    def _own(self, dataset: Any, workers: int) -> Iterable[Any]:
        settings: dict[str, Any] = {"shuffle": isinstance(self.loader.sampler, RandomSampler)}
        settings |= {"drop_last": self.loader.drop_last, "collate_fn": self.loader.collate_fn}
        return Loader(dataset, self.costs.batch_size, workers, **settings)
