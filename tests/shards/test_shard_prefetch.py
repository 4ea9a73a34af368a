"""prefetch: shards are fetched in their order, a few ahead, by a thread that keeps no process alive."""

import threading

from ocr.errors import DataError
from ocr.shards.prefetch import Prefetcher


class Fetched:
    """Shards in the order in which they came; `wanted` of them can be waited for."""

    def __init__(self) -> None:
        self.shards: list[int] = []
        self._change = threading.Condition()

    def __call__(self, shard: int) -> None:
        with self._change:
            self.shards.append(shard)
            self._change.notify_all()
        if shard == 7:
            raise DataError("shard 7 is gone")

    def until(self, wanted: int) -> list[int]:
        with self._change:
            assert self._change.wait_for(lambda: len(self.shards) >= wanted, timeout=60)
            return list(self.shards)


def test_shards_are_fetched_in_order_no_further_ahead_than_allowed_and_those_that_were_passed_are_left_out():
    fetched = Fetched()
    prefetcher = Prefetcher([5, 7, 3, 1, 9, 2], fetched, ahead=1)
    # One that cannot be fetched is reported by whoever reads it; the next one follows.
    assert fetched.until(2) == [5, 7]
    prefetcher.reach(1)
    assert fetched.until(4) == [5, 7, 1, 9]
    prefetcher.reach(1)
    prefetcher.stop()
    assert fetched.shards == [5, 7, 1, 9]


def test_a_fetch_that_hangs_does_not_keep_the_process_alive():
    hanging, begun = threading.Event(), threading.Event()

    def fetch(shard: int) -> None:
        begun.set()
        hanging.wait(60)

    prefetcher = Prefetcher([0], fetch)
    assert begun.wait(60)
    (thread,) = (one for one in threading.enumerate() if one.name == "prefetch-shards")
    assert thread.daemon
    prefetcher.stop()
    hanging.set()
    thread.join(60)
    assert not thread.is_alive()
