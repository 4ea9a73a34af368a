"""A cgroup with less memory, or a slower disk, than the machine has."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MEMORY, DISK = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/blkio")


@contextmanager
def limited(memory_bytes: int, disk_bytes: int | None = None, folder: Path = Path()) -> Iterator[list[Path]]:
    """Groups with these limits: of memory first, then of reads per second from the disk of a folder, if given.

    Removed at the end, also after Ctrl-C.
    """
    limits = {MEMORY: ("memory.limit_in_bytes", str(memory_bytes))}
    if disk_bytes is not None:
        device = folder.stat().st_dev
        shown = f"{os.major(device)}:{os.minor(device)} {disk_bytes}"
        limits[DISK] = ("blkio.throttle.read_bps_device", shown)
    groups = [parent / f"glyphfeed-{os.getpid()}" for parent in limits]
    try:
        for group, (name, limit) in zip(groups, limits.values(), strict=True):
            try:
                group.mkdir()
                (group / name).write_text(limit)
            except OSError as error:
                sys.exit(f"skipped: {group}: {error.strerror}. Run it as root, on a system with cgroup v1")
        yield groups
    finally:
        for group in filter(Path.exists, groups):
            # Workers of a process that was killed end a little later.
            for _ in range(100):
                if not (group / "cgroup.procs").read_text():
                    break
                time.sleep(0.1)
            group.rmdir()


def joining(groups: Sequence[Path]) -> Callable[[], None]:
    """For subprocess's preexec_fn: the process is in the groups from its start."""

    def join() -> None:
        for group in groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    return join
