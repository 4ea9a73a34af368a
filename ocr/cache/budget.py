"""budget: how many bytes the store of one folder can take."""

from __future__ import annotations

import shutil
from pathlib import Path

from ocr.system import free_memory, is_in_memory, total_memory
from ocr.units import format_bytes, parse_bytes

AUTO_SHARE = 0.5
"""Of the free disk and of what the store takes already."""
MIN_RESERVE_BYTES = 256 << 20
RESERVE_SHARE = 0.1
"""Of all memory: what a store in memory (tmpfs) leaves free."""


class Budget:
    """The limit of everything that one folder keeps."""

    def __init__(self, root: Path, max_bytes: int | str, in_use: int) -> None:
        """`root` is the folder, which exists; `in_use` is what its store takes now."""
        if max_bytes == "auto":
            self.limit = int(AUTO_SHARE * (shutil.disk_usage(root).free + in_use))
            self.setting = f"cache.max_bytes=auto, {AUTO_SHARE:.0%} of the free disk"
        else:
            self.limit = parse_bytes(max_bytes)
            self.setting = f"cache.max_bytes={max_bytes}"
        # Pages of a file on disk leave memory when somebody needs it. Files on tmpfs stay until they are removed, and
        # would be the reason for an out-of-memory kill.
        self._in_memory = is_in_memory(root)
        self._reserve = max(MIN_RESERVE_BYTES, int(RESERVE_SHARE * total_memory())) if self._in_memory else 0

    def shortage(self, more: int) -> str:
        """Why memory has no room for so many bytes more; empty if it has, or if the folder is on a disk."""
        if not self._in_memory or (free := free_memory()) - more >= self._reserve:
            return ""
        return f"it is in memory (tmpfs), {format_bytes(free)} are free, and {format_bytes(self._reserve)} stay free"
