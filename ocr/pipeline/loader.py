"""loader: batches of a dataset in the order of `(seed, epoch)`, resumable in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from ocr.pipeline.batch import Batch
from ocr.pipeline.order import EpochBatches


class EpochLoader(DataLoader[Any]):
    """torch's DataLoader over `EpochBatches`, which knows how far it is."""

    def __init__(self, dataset: Any, batches: EpochBatches, **settings: Any) -> None:
        super().__init__(dataset, batch_sampler=batches, **settings)
        self.batches = batches
        self._done = 0

    def __iter__(self) -> Iterator[Batch | None]:  # type: ignore[override]
        self.dataset.set_epoch(self.batches.epoch)  # type: ignore[attr-defined]
        self._done = self.batches.first_batch
        for batch in super().__iter__():
            self._done += 1
            yield batch
        self.batches.first_batch = self._done = 0

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches were handed out."""
        return {"epoch": self.batches.epoch, "batches": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on with the batch after those of the state, with any number of workers."""
        self.batches.epoch, self.batches.first_batch = state["epoch"], state["batches"] % len(self.batches)
