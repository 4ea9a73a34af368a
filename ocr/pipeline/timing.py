"""timing: what each stage of the path takes, measured where it runs, while somebody asks for it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext


class StageTimes:
    """Seconds by stage, in all threads; a stage within another counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._lock, self._of_thread = threading.Lock(), threading.local()

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time of the block, without that of stages within it."""
        outer, self._of_thread.inner = getattr(self._of_thread, "inner", 0.0), 0.0
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            with self._lock:
                self.seconds[stage] += spent - self._of_thread.inner
            self._of_thread.inner = outer + spent


_OFF: AbstractContextManager[None] = nullcontext()
_times: StageTimes | None = None


def timed(stage: str) -> AbstractContextManager[None]:
    """The block is this stage; costs a call if nobody asks."""
    return _OFF if _times is None else _times.measure(stage)


@contextmanager
def stage_times() -> Iterator[StageTimes]:
    """What the stages of all paths of this process take meanwhile."""
    global _times
    _times = StageTimes()
    try:
        yield _times
    finally:
        _times = None
