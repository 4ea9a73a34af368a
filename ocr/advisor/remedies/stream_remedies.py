"""What would make batches from anywhere faster: making the next one while the step runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from ocr.advisor.measure.stream import StreamCosts
from ocr.advisor.model.queueing import Pipeline
from ocr.advisor.remedies.advice import Remedy

AHEAD = 2


class InThread:
    """The same batches, the next ones made by a thread while the caller uses one."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        passed, end = iter(self.batches), object()
        with ThreadPoolExecutor(1) as pool:
            made = deque(pool.submit(next, passed, end) for _ in range(AHEAD))
            while (batch := made.popleft().result()) is not end:
                made.append(pool.submit(next, passed, end))
                yield batch


class StreamRemedies:
    """The batches as they come, and how else they could be made; a stream cannot be divided among workers unasked."""

    def __init__(self, batches: Iterable[Any], costs: StreamCosts, cores: int) -> None:
        self.batches, self.costs, self.cores = batches, costs, cores
        pipeline = self._pipeline(int(costs.overlaps))
        self.present = Remedy("present", (), "", pipeline.predict(), pipeline.predict(), 1.0)

    def all(self) -> list[Remedy]:
        """Best first."""
        if self.costs.overlaps:
            return []
        found = [self._remedy("batches ahead", "make the next batch in a thread while the step runs", 1)]
        sending = self.costs.sending
        if sending is not None and sending.transfer is not None:
            change = "num_workers=1, persistent_workers=True"
            found.append(self._remedy("1 worker process", change, 1, sending.worker_bytes, processes=True))
        return sorted(found, key=lambda remedy: -round(remedy.gain, 2))

    def build(self, remedy: Remedy, folder: Path) -> Iterable[Any]:
        """The batches of a remedy."""
        if remedy.name == "1 worker process":
            given: Any = self.batches
            return DataLoader(
                given.dataset,
                given.batch_size,
                num_workers=1,
                persistent_workers=True,
                collate_fn=given.collate_fn,
                drop_last=given.drop_last,
                pin_memory=given.pin_memory,
                worker_init_fn=given.worker_init_fn,
            )
        return self.batches if remedy is self.present else InThread(self.batches)

    def _remedy(self, name: str, change: str, workers: int, kept_bytes: int = 0, processes: bool = False) -> Remedy:
        later = self._pipeline(workers, processes).predict()
        gain = self.present.later.epoch_seconds / later.epoch_seconds
        return Remedy(name, (change,), "", later, later, gain, kept_bytes)

    def _pipeline(self, workers: int, processes: bool = False) -> Pipeline:
        costs = self.costs
        demands = [costs.loading]
        if processes and costs.sending is not None and costs.sending.transfer is not None:
            demands.append(costs.sending.transfer)
        return Pipeline(tuple(demands), costs.consumer, costs.batches, 1, workers, self.cores, processes)
