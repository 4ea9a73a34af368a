"""How much of the CPU other processes use while something is measured."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress

from ocr.system import usable_cores

BUSY = 0.1
"""Share of the cores that other processes may use before a warning is shown."""


class CpuOfOthers:
    """Share of the machine's cores used, since it was made, by processes other than this one and its children."""

    def __init__(self) -> None:
        self._start, self._before = time.monotonic(), _cpu_seconds()

    def share(self) -> float | None:
        """So far; None if the system does not report it."""
        now, spent = _cpu_seconds(), time.monotonic() - self._start
        if now is None or self._before is None:
            return None
        (busy, own), (busy_before, own_before) = now, self._before
        others = (busy - busy_before) - (own - own_before)
        return max(0.0, others / (spent * usable_cores()))


def own_cpu_seconds() -> float:
    """CPU seconds of all threads of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _cpu_seconds() -> tuple[float, float] | None:
    """CPU seconds of all processes, and of this one with the children that have ended."""
    with suppress(OSError, ValueError), open("/proc/stat", encoding="ascii") as lines:
        user, nice, system, _idle, _wait, *interrupts = map(int, next(lines).split()[1:])
        ticks = user + nice + system + sum(interrupts[:2])
        return ticks / os.sysconf("SC_CLK_TCK"), own_cpu_seconds()
    return None


def warning(share: float | None) -> str:
    """What to tell the user; empty if other processes hardly used the cores."""
    if share is None or share <= BUSY:
        return ""
    return f"other processes used {share:.0%} of the cores: measure again when they have ended"
