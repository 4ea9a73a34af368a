"""What this process has of the machine: cores, memory, and other processes.

Linux tells all of it in files; psutil is for other systems, and imported only there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
"""Where /proc and /sys are."""


def usable_cores() -> int:
    """How many cores this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that programs could allocate, including what the page cache gives back: of the machine or the cgroup."""
    free = _memory("MemAvailable", "available")
    return max(0, min([free, *(limit - used for limit, used in _cgroup_limits())]))


def total_memory() -> int:
    """Bytes of memory of the machine, or of the cgroup if that has less."""
    return min([_memory("MemTotal", "total"), *(limit for limit, _ in _cgroup_limits())])


def memory_bytes() -> int:
    """Memory of this process and its descendants; what they share counts once where the system reports that."""
    return sum(map(_memory_of, process_tree(os.getpid())))


def _memory_of(process: int) -> int:
    with suppress(OSError, StopIteration), open(f"/proc/{process}/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    import psutil

    with suppress(psutil.Error):
        return int(psutil.Process(process).memory_info().rss)
    return 0


def process_tree(process: int) -> list[int]:
    """A process and its descendants."""
    found, threads = [process], f"/proc/{process}/task"
    if not Path("/proc").exists():
        import psutil

        with suppress(psutil.Error):
            return [process, *(child.pid for child in psutil.Process(process).children(recursive=True))]
    with suppress(OSError):
        for thread in os.listdir(threads):
            with suppress(OSError), open(f"{threads}/{thread}/children", encoding="ascii") as children:
                found += [one for child in children.read().split() for one in process_tree(int(child))]
    return found


def is_in_memory(path: Path) -> bool:
    """Whether files there take memory that only their removal gives back: tmpfs, as /dev/shm is."""
    try:
        device = path.stat().st_dev
        for line in (ROOT / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            fields, _, kind = line.partition(" - ")
            if fields.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                return kind.split()[0] in ("tmpfs", "ramfs")
    except (OSError, IndexError):
        pass
    return False


def _memory(line: str, name: str) -> int:
    """A number of bytes of the machine's memory."""
    with suppress(OSError, StopIteration), (ROOT / "proc/meminfo").open(encoding="ascii") as lines:
        return next(int(each.split()[1]) << 10 for each in lines if each.startswith(f"{line}:"))
    import psutil

    return int(getattr(psutil.virtual_memory(), name))


def _cgroup_limits() -> Iterator[tuple[int, int]]:
    """Limit and use of each cgroup that this process is in; clean and dirty pages of files do not count as used."""
    try:
        lines = (ROOT / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, limit, usage, prefix = "sys/fs/cgroup", "memory.max", "memory.current", ""
        elif "memory" in controllers.split(","):
            mount, limit, usage = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            prefix = "total_"
        else:
            continue
        # Inside a container the path can be the host's: the mount itself is then the container's group.
        group = Path(path.lstrip("/"))
        for folder in dict.fromkeys([group, *group.parents]):
            try:
                here = ROOT / mount / folder
                bound, used = int((here / limit).read_text()), int((here / usage).read_text())
                counts = dict(line.split() for line in (here / "memory.stat").read_text().splitlines() if line)
            except (OSError, ValueError):
                continue  # No limit ("max"), or no such group.
            yield bound, used - sum(int(counts.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))


def has_ended(process: str) -> bool:
    """Whether a process id, as written into a file name, is of no running process."""
    if not process.isdigit():
        return False
    if Path("/proc").exists():
        return not Path(f"/proc/{process}").exists()
    import psutil

    return not psutil.pid_exists(int(process))
