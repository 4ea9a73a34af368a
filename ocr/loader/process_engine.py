"""The batches of one loader from torch's DataLoader: worker processes, for transforms that hold the GIL."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from torch.utils.data import DataLoader

from ocr.loader.batch_maker import Collate, Finish
from ocr.loader.protocol import LoadableDataset
from ocr.pipeline.batch import Batch


class ProcessEngine:
    """A DataLoader whose workers end with every pass, unless they are persistent."""

    def __init__(
        self,
        dataset: LoadableDataset,
        collate_fn: Collate,
        finish: Finish | None,
        num_workers: int,
        **settings: Any,
    ) -> None:
        """`settings` are those of torch's DataLoader; the ones that need workers are ignored without."""
        if not num_workers:
            settings = {name: value for name, value in settings.items() if name not in NEED_WORKERS}
        self._plan = _Plan()
        self._loader: DataLoader[Any] = DataLoader(
            dataset,  # type: ignore[arg-type]
            batch_sampler=self._plan,
            num_workers=num_workers,
            collate_fn=collate_fn,
            **settings,
        )
        self._finish = finish

    def batches(self, plan: Iterator[list[int]]) -> Generator[Batch | None]:
        """One pass; `plan` gives the samples of each batch."""
        self._plan.batches = plan
        passed = iter(self._loader)
        try:
            for batch in passed:
                yield self._finish(batch) if self._finish is not None and batch is not None else batch
        finally:
            # The traceback of an error keeps the iterator alive, and with it the workers.
            if not self._loader.persistent_workers and hasattr(passed, "_shutdown_workers"):
                passed._shutdown_workers()


class _Plan:
    """The batch sampler of the DataLoader: the plan of the pass that is about to start."""

    def __init__(self) -> None:
        self.batches: Iterator[list[int]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return self.batches


NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
