"""The next shards are fetched while the current ones are read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from ocr.errors import GlyphFeedError

SHARDS_AHEAD = 2


class Prefetcher:
    """One thread that fetches shards in the order of their first use, a few before they are needed."""

    def __init__(self, shards: Sequence[int], fetch: Callable[[int], object], ahead: int = SHARDS_AHEAD) -> None:
        """`shards` are numbers, each once; `fetch` is called with one of them."""
        self._positions = {shard: position for position, shard in enumerate(shards)}
        self._fetch, self._ahead = fetch, ahead
        self._reached = 0
        self._stopped = False
        self._process = os.getpid()
        self._change = threading.Condition()
        threading.Thread(target=self._run, daemon=True, name="prefetch-shards").start()

    def reach(self, shard: int) -> None:
        """A shard is in use: those that follow it are next."""
        position = self._positions.get(shard, 0)
        # A worker process has a copy of this object, but not its thread.
        if position > self._reached and os.getpid() == self._process:
            with self._change:
                self._reached = position
                self._change.notify()

    def stop(self) -> None:
        """Fetch no further shard; a fetch that has started still finishes."""
        if os.getpid() == self._process:
            with self._change:
                self._stopped = True
                self._change.notify()

    def _run(self) -> None:
        for shard, position in self._positions.items():
            with self._change:
                self._change.wait_for(lambda at=position: self._stopped or at <= self._reached + self._ahead)  # type: ignore[misc]
                if self._stopped:
                    return
                passed = position < self._reached
            if passed:
                continue  # Whoever read it has fetched it, and it may have made room for others since.
            # Reading a shard that cannot be fetched reports the error.
            with suppress(GlyphFeedError):
                self._fetch(shard)
