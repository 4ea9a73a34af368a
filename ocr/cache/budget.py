"""How many bytes the cache of one dataset may take."""

from __future__ import annotations

import shutil
from pathlib import Path

from ocr.system import free_memory
from ocr.units import parse_bytes

AUTO_SHARE = 0.4
"""Share of free memory and of free disk, per dataset: training and validation together leave a fifth."""


class Budget:
    """The limit of one run: a number of bytes, or a share of what is free when it is first needed."""

    def __init__(self, max_bytes: int | str = "auto") -> None:
        self.max_bytes = None if max_bytes == "auto" else parse_bytes(max_bytes)
        self._limit: int | None = None

    def __str__(self) -> str:
        if self.max_bytes is None:
            return f"cache.max_bytes=auto, {AUTO_SHARE:.0%} of the memory and disk that were free"
        return f"cache.max_bytes={self.max_bytes}"

    def limit(self, root: Path, used: int) -> int:
        """The limit in bytes; `used` is what the cache itself already takes of the disk."""
        if self._limit is None:
            self._limit = self.max_bytes
            if self._limit is None:
                free_disk = shutil.disk_usage(root).free + used
                self._limit = int(AUTO_SHARE * min(free_memory(), free_disk))
        return self._limit
