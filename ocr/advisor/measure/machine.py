"""Facts of the machine that figures were measured on."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ocr.system import usable_cores

LIBRARIES = ("torch", "numpy", "numba", "opencv-python-headless", "simplejpeg", "pillow", "lightning")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a figure depends on, beside the code."""

    processor: str
    cores: int
    """That this process may use."""
    memory_bytes: int
    free_memory_bytes: int
    free_disk_bytes: int
    """Where caches lie."""
    device: str
    """cpu, or the name of the GPU."""
    system: str
    libraries: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def look_at_machine(cache_folder: Path) -> Machine:
    """The facts of this machine, now."""
    import torch

    memory = _memory_info()
    present = next(folder for folder in (cache_folder, *cache_folder.resolve().parents) if folder.exists())
    return Machine(
        processor=_processor(),
        cores=usable_cores(),
        memory_bytes=memory["MemTotal"],
        free_memory_bytes=memory["MemAvailable"],
        free_disk_bytes=shutil.disk_usage(present).free,
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        libraries={name: _version(name) for name in LIBRARIES},
    )


def _memory_info() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if len(line.split()) > 1}
    except OSError:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return {"MemTotal": pages, "MemAvailable": pages}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        return "not installed"
