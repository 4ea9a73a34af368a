"""What this process has of the machine: cores, memory, and other processes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that programs could allocate, including what the page cache would give back."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def total_memory() -> int:
    """Bytes of memory that this process may use at most: the machine's, or the limit of its control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # Not in such a group, or "max".
            limits.append(int(Path(limit).read_text(encoding="ascii")))
    return min(limits)


def has_ended(process: str) -> bool:
    """Whether a process id, as written into a file name, is of no running process; false if that cannot be told."""
    return process.isdigit() and Path("/proc").exists() and not Path(f"/proc/{process}").exists()
