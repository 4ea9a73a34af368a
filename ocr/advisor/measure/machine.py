"""Facts about the machine that was measured, on which results depend besides the code."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ocr.system import free_memory, usable_cores

LIBRARIES = ("torch", "numpy", "numba", "opencv-python-headless", "simplejpeg", "pillow", "lightning")


def describe_machine(cache_folder: Path) -> dict[str, Any]:
    """The facts of this machine now; free disk space is that of the folder of the caches."""
    import torch

    existing = next(folder for folder in (cache_folder, *cache_folder.resolve().parents) if folder.exists())
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "free_memory_bytes": free_memory(),
        "free_disk_bytes": shutil.disk_usage(existing).free,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
