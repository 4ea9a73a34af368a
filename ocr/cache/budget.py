"""How many bytes the cache of one dataset may take, and all caches of a folder together."""

from __future__ import annotations

import shutil
from pathlib import Path

from ocr.cache.eviction import make_room
from ocr.cache.folder import disk_bytes, list_stores
from ocr.system import free_memory, is_in_memory, total_memory
from ocr.units import format_bytes, parse_bytes

AUTO_SHARE = 0.4
"""Share of free memory and of free disk, per dataset: training and validation together leave a fifth."""
TOTAL_SHARE = 0.5
"""Share of the free disk and of what caches take already, for all caches together."""
MIN_RESERVE_BYTES = 256 << 20
RESERVE_SHARE = 0.1
"""Share of all memory that a cache in memory (tmpfs) leaves free."""


class Budget:
    """The limits of one run: numbers of bytes, or shares of what is free when it is first needed."""

    def __init__(
        self, max_bytes: int | str = "auto", max_total_bytes: int | str = "auto", larger_than_memory: bool = False
    ) -> None:
        """`larger_than_memory`: the cache is worth its place on disk even if it does not fit into memory."""
        self._larger_than_memory = larger_than_memory
        self.max_bytes = None if max_bytes == "auto" else parse_bytes(max_bytes)
        self.max_total_bytes = (
            None if max_total_bytes == "auto" else parse_bytes(max_total_bytes, "cache.max_total_bytes")
        )
        self._limit: int | None = None
        self._total: int | None = None

    def room(self, folder: Path, used: int, planned: int) -> tuple[int, str]:
        """The limit in bytes of the cache in `folder`, and the setting it comes from, after making room for it.

        `used` is what it takes of the disk, `planned` what all its pages would take. Caches that are not open are
        removed if all together would exceed their limit.
        """
        root = folder.parent
        others = sum(disk_bytes(other) for other in list_stores(root) if other != folder)
        total = self._total_limit(root, used + others)
        wanted = min(planned, self._own_limit(root, used + others) if self._limit is None else self._limit)
        others -= make_room(folder, max(wanted, used), total, self._total_name())
        if self._limit is None:
            self._limit = self._own_limit(root, used)
        if total - others < self._limit:
            return total - others, self._total_name()
        return self._limit, self._own_name()

    def expected(self, root: Path, used: int) -> tuple[int, str]:
        """The limit in bytes of a cache that takes `used` so far, and its setting; no room is made yet."""
        own, total = self._own_limit(root, used), self._total_limit(root, used)
        return (own, self._own_name()) if own <= total else (total, self._total_name())

    def _own_limit(self, root: Path, used: int) -> int:
        if self.max_bytes is not None:
            return self.max_bytes
        free = shutil.disk_usage(root).free + used
        return int(AUTO_SHARE * (free if self._larger_than_memory else min(free_memory(), free)))

    def _total_limit(self, root: Path, used: int) -> int:
        if self._total is None:
            self._total = self.max_total_bytes
            if self._total is None:
                self._total = int(TOTAL_SHARE * (shutil.disk_usage(root).free + used))
        return self._total

    def _own_name(self) -> str:
        if self.max_bytes is None:
            of = "disk that was" if self._larger_than_memory else "memory and disk that were"
            return f"cache.max_bytes=auto, {AUTO_SHARE:.0%} of the {of} free"
        return f"cache.max_bytes={self.max_bytes}"

    def _total_name(self) -> str:
        if self.max_total_bytes is None:
            return f"cache.max_total_bytes=auto, {TOTAL_SHARE:.0%} of the disk that caches may use"
        return f"cache.max_total_bytes={self.max_total_bytes}"


class MemoryReserve:
    """Memory that a cache on tmpfs leaves to programs; on a disk there is nothing to do.

    Pages of a file on disk are in memory only as long as nobody needs it: the system takes them back by itself.
    Files on tmpfs stay until they are removed, and would be the reason for an out-of-memory kill.
    """

    def __init__(self, root: Path) -> None:
        """`root` is the folder of the caches, which exists."""
        self.applies = is_in_memory(root)
        self._reserve = max(MIN_RESERVE_BYTES, int(RESERVE_SHARE * total_memory())) if self.applies else 0

    def shortage(self, more_bytes: int) -> str:
        """Why so many bytes more would take too much memory; empty if they would not."""
        if not self.applies or (free := free_memory()) - more_bytes >= self._reserve:
            return ""
        return f"it is in memory (tmpfs), {format_bytes(free)} are free, and {format_bytes(self._reserve)} stay free"

    def is_urgent(self) -> bool:
        """Whether programs took so much of the reserve that the cache must go."""
        return self.applies and free_memory() < self._reserve // 2
