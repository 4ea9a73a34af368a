"""processes: the batches of one loader from torch's DataLoader, for transforms that hold the GIL."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from torch.utils.data import DataLoader

from ocr.loader.buffers import Collate, Finish
from ocr.pipeline.batch import Batch, Item, in_shape
from ocr.pipeline.path import path_of

Key = tuple[int, int, tuple[int, int] | None]
"""Epoch and index of a sample, and the (height, width) of its batch if pages keep their own shape."""
NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


class ProcessEngine:
    """A DataLoader whose workers end with every pass, unless they are persistent."""

    def __init__(
        self, dataset: Any, collate_fn: Collate, finish: Finish | None, num_workers: int, **settings: Any
    ) -> None:
        """`settings` are those of torch's DataLoader; the ones that need workers are ignored without."""
        if not num_workers:
            settings = {name: value for name, value in settings.items() if name not in NEED_WORKERS}
        self._settings = settings | {"num_workers": num_workers, "collate_fn": collate_fn}
        self._dataset, self._finish = _ItemsOfEpochs(dataset), finish
        self._idle: list[DataLoader[Any]] = [self._new_loader()]
        """At most one loader, whose workers wait for the next pass if they are persistent."""

    def batches(self, plan: Iterator[list[int]], epoch: int) -> Generator[Batch | None]:
        """One pass over an epoch; `plan` gives the samples of each batch."""
        # Persistent workers serve one pass at a time: another one would end the first.
        loader = self._idle.pop() if self._idle else self._new_loader()
        sampler = loader.batch_sampler
        assert isinstance(sampler, _Plan)
        sampler.batches = ([(epoch, index, getattr(indices, "shape", None)) for index in indices] for indices in plan)
        passed = iter(loader)
        try:
            for batch in passed:
                yield self._finish(batch) if self._finish is not None and batch is not None else batch
        finally:
            # The traceback of an error keeps the iterator alive, and with it the workers.
            if (not loader.persistent_workers or self._idle) and hasattr(passed, "_shutdown_workers"):
                passed._shutdown_workers()
            self._idle = self._idle or [loader]

    def _new_loader(self) -> DataLoader[Any]:
        return DataLoader(self._dataset, batch_sampler=_Plan(), **self._settings)  # type: ignore[arg-type]


class _Plan:
    """The batch sampler of the DataLoader: the plan of the pass that is about to start."""

    def __init__(self) -> None:
        self.batches: Iterator[list[Key]] = iter(())

    def __iter__(self) -> Iterator[list[Key]]:
        return self.batches


class _ItemsOfEpochs:
    """The samples of a dataset by epoch and index: passes over one dataset at once have different epochs."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, key: Key) -> Item | None:
        epoch, index, shape = key
        if path_of(self.dataset) is not None:
            return in_shape(self.dataset.item(index, epoch), shape)
        try:
            item: Item | None = self.dataset[index]
            return item
        except StopIteration as error:
            # To torch's DataLoader this would be the end of the epoch.
            raise RuntimeError(f"item {index} of the dataset raised StopIteration") from error
