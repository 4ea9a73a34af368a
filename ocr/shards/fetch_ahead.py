"""The next shards are fetched while the present ones are read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from ocr.errors import GlyphFeedError

SHARDS_AHEAD = 2


class FetchAhead:
    """One thread that fetches shards in the order of their first use, a few before they are needed."""

    def __init__(self, shards: Sequence[int], fetch: Callable[[int], object], ahead: int = SHARDS_AHEAD) -> None:
        """`shards` are numbers, each once; `fetch` is called with one of them."""
        self._place = {shard: place for place, shard in enumerate(shards)}
        self._fetch, self._ahead = fetch, ahead
        self._reached = 0
        self._stopped = False
        self._process = os.getpid()
        self._change = threading.Condition()
        threading.Thread(target=self._run, daemon=True, name="fetch-ahead").start()

    def reach(self, shard: int) -> None:
        """A shard is used: those behind it come next."""
        place = self._place.get(shard, 0)
        # A worker process has a copy of this, and not its thread.
        if place > self._reached and os.getpid() == self._process:
            with self._change:
                self._reached = place
                self._change.notify()

    def stop(self) -> None:
        """No further shard; one that is on its way still arrives."""
        if os.getpid() == self._process:
            with self._change:
                self._stopped = True
                self._change.notify()

    def _run(self) -> None:
        for shard, place in self._place.items():
            with self._change:
                self._change.wait_for(lambda place=place: self._stopped or place <= self._reached + self._ahead)  # type: ignore[misc]
                if self._stopped:
                    return
            # Whoever needs a shard that cannot be fetched is told.
            with suppress(GlyphFeedError):
                self._fetch(shard)
