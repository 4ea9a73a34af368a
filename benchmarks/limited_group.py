"""A cgroup with less memory, or a slower disk, than the machine has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ocr.errors import ConfigError

MEMORY, DISK = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/blkio")


@contextmanager
def limited(memory_bytes: int, disk_bytes: int, folder: Path) -> Iterator[list[Path]]:
    """Groups with these limits: of memory first, then of reads per second from the disk of a folder.

    Removed at the end, even after Ctrl-C.
    """
    device = folder.stat().st_dev
    limits = {
        MEMORY: ("memory.limit_in_bytes", str(memory_bytes)),
        DISK: ("blkio.throttle.read_bps_device", f"{os.major(device)}:{os.minor(device)} {disk_bytes}"),
    }
    groups = [parent / f"glyphfeed-{os.getpid()}" for parent in limits]
    try:
        for group, (name, limit) in zip(groups, limits.values(), strict=True):
            try:
                group.mkdir()
                (group / name).write_text(limit)
            except OSError as error:
                problem = f"{group}: {error.strerror}. Run it as root, on a system with cgroup v1"
                raise ConfigError(problem, path=group) from error
        yield groups
    finally:
        for group in filter(Path.exists, groups):
            # Workers of a process that was killed end a little later.
            for _ in range(100):
                if not (group / "cgroup.procs").read_text():
                    break
                time.sleep(0.1)
            group.rmdir()


def join(groups: Sequence[Path]) -> None:
    """This process is in the groups from now on."""
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))
