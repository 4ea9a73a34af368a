"""How busy others keep the machine while something is measured on it."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress

from ocr.system import usable_cores


class Others:
    """From when it is made: the share of the machine's cores that went to processes other than this and its own."""

    def __init__(self) -> None:
        self._start, self._before = time.monotonic(), _cpu_seconds()

    def share(self) -> float | None:
        """So far; None where the system does not tell."""
        now, spent = _cpu_seconds(), time.monotonic() - self._start
        if now is None or self._before is None:
            return None
        (busy, own), (busy_before, own_before) = now, self._before
        others = (busy - busy_before) - (own - own_before)
        return max(0.0, others / (spent * usable_cores()))


def _cpu_seconds() -> tuple[float, float] | None:
    """What all cores computed, for everybody and for this process and the children it has seen end."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with suppress(OSError, ValueError), open("/proc/stat", encoding="ascii") as lines:
        user, nice, system, _idle, _wait, *interrupts = map(int, next(lines).split()[1:])
        ticks = user + nice + system + sum(interrupts[:2])
        return ticks / os.sysconf("SC_CLK_TCK"), sum(usage.ru_utime + usage.ru_stime for usage in own)
    return None
