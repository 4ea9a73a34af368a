"""Micro-batches: pages that several threads bring at the same time share one call of the model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ocr.checks import Range, check_integer
from ocr.deploy.runtimes import Runtime
from ocr.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    pages_bhwc: NDArray[np.uint8]
    maps: Future[NDArray[np.float32]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class MicroBatches:
    """A runtime for many threads: pages of one size that come within `wait_seconds` go into one call of `runtime`.

    While the model works, more of them gather for its next call. At most as many pages wait as there are threads that
    call; each is blocked until its maps are there. `runtime` itself is called by one thread only.
    """

    def __init__(
        self,
        runtime: Runtime,
        batch_size: int = 4,
        wait_seconds: float = 0.005,
        on_batch: Callable[[int], None] = lambda pages: None,
    ) -> None:
        check_integer("batch_size", batch_size, minimum=1)
        if wait_seconds not in Range(0):
            raise ConfigError(
                f"wait_seconds={wait_seconds!r} must be {Range(0)}", setting="wait_seconds", value=wait_seconds
            )
        self.runtime, self.batch_size, self.wait_seconds, self.on_batch = runtime, batch_size, wait_seconds, on_batch
        self._calls: list[_Call] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def __call__(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        call = _Call(pages_bhwc)
        with self._changed:
            if self._closed:
                raise RuntimeError("the model was asked after the service had ended")
            self._calls.append(call)
            self._changed.notify_all()
        return call.maps.result()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Finish the calls that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            sizes = [len(call.pages_bhwc) for call in batch]
            try:
                self.on_batch(sum(sizes))
                maps = self.runtime(np.concatenate([call.pages_bhwc for call in batch]))
                for call, own in zip(batch, np.split(maps, np.cumsum(sizes)[:-1]), strict=True):
                    call.maps.set_result(own)
            except Exception as error:  # Whatever a runtime raises belongs to those who wait for it.
                for call in batch:
                    if not call.maps.done():
                        call.maps.set_exception(error)

    def _next_batch(self) -> list[_Call]:
        """Calls for pages of the size that waits longest; none after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._calls or self._closed)
            if not self._calls:
                return []
            left = self._calls[0].arrived + self.wait_seconds - time.monotonic()
            self._changed.wait_for(lambda: self._is_full() or self._closed, max(0.0, left))
            batch = self._batch()
            self._calls = [call for call in self._calls if call not in batch]
            return batch

    def _is_full(self) -> bool:
        return sum(len(call.pages_bhwc) for call in self._batch()) >= self.batch_size

    def _batch(self) -> list[_Call]:
        shape = self._calls[0].pages_bhwc.shape[1:]
        batch: list[_Call] = []
        room = self.batch_size
        for call in self._calls:
            if call.pages_bhwc.shape[1:] == shape and (not batch or len(call.pages_bhwc) <= room):
                batch.append(call)
                room -= len(call.pages_bhwc)
        return batch
