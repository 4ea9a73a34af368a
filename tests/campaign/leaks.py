"""What a case leaves behind: processes, threads, descriptors, files."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.campaign.cases import LeakError

SETTLE_SECONDS = 10.0
UNFINISHED = ("*.partial", "*.lock")
MAX_DESCRIPTORS = 16
"""Libraries open a few of their own on first use."""


class Belongings:
    """Threads and descriptors of this process before a case; `compare` raises LeakError for what is new after it."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._children = set(child_processes())
        self._descriptors = len(_descriptors())

    def compare(self, folder: Path) -> None:
        """`folder` is that of the case."""
        until = time.monotonic() + SETTLE_SECONDS
        while (left := self._left(folder)) and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        if left:
            raise LeakError(left)

    def _left(self, folder: Path) -> str:
        if threads := [thread.name for thread in threading.enumerate() if thread not in self._threads]:
            return f"threads: {', '.join(threads)}"
        if children := set(child_processes()) - self._children:
            return f"processes: {sorted(children)}"
        targets = _descriptors()
        if own := [target for target in targets if target.startswith(str(folder))]:
            return f"descriptors: {', '.join(sorted(own))}"
        if len(targets) > self._descriptors + MAX_DESCRIPTORS:
            return f"{len(targets)} descriptors instead of {self._descriptors}: {', '.join(sorted(targets)[:20])}"
        if files := unfinished_files(folder):
            return f"files: {', '.join(files)}"
        return ""


def unfinished_files(folder: Path) -> list[str]:
    """What a writer that has ended should have removed or finished."""
    return sorted(str(path.relative_to(folder)) for kind in UNFINISHED for path in folder.rglob(kind))


def child_processes() -> list[int]:
    """Children of this process that have not been waited for."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            found += map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
    return found


def session_processes(session: int) -> list[int]:
    """Processes of a session, found in /proc."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError):
                if os.getsid(int(entry)) == session and _is_alive(int(entry)):
                    found.append(int(entry))
    return found


def _is_alive(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _descriptors() -> list[str]:
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
    return found
