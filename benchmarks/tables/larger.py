"""A cache several times larger than the memory: pages per second of whole epochs, under the limit of a cgroup.

As root, with cgroup v1. The disk is limited too, so that it and not the cores sets the pace. Every contender is a
process of its own in the group, from its first import on, and starts with the file out of memory.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.harness import Data, Figure, Row, benchmark, figure, fresh_process
from benchmarks.limited_group import join, limited

SIDE = 264
"""Noise of this side takes 209 kB: as much as a receipt of 640 x 640 in dense form."""
PAGE_BYTES, PAGES = SIDE * SIDE * 3, 9600
FILES = 64
"""Different images; the other pages are links to them."""
MEMORY, DISK = 600 * 10**6, 60 * 10**6
"""Bytes of the group, and bytes per second."""
EPOCHS, SECONDS = 2, 6.0
"""Of each process, and after how many seconds an epoch is interrupted."""
FILE = "reading the file"
CONTENDERS: dict[str, dict[str, Any]] = {
    FILE: {},
    "in order": {"shuffle": False},
    "shuffled": {"shuffle": True},
    "shuffled, worker processes": {"shuffle": True, "engine": "processes"},
}
PACE = dict.fromkeys(("in order", "shuffled", "shuffled, worker processes"), 0.8)
"""At least this share of the pace at which the file is read."""


class Pace(NamedTuple):
    """Of one process."""

    rates: list[float]
    """Pages per second of each epoch."""
    grown: int
    """Bytes from the first epoch to the last that are not pages of files."""


@benchmark("larger", table="results#larger", pages=(), threads=None)
def larger(data: Data) -> Iterator[Row | str]:
    """A cache larger than memory, on a slow disk."""
    from benchmarks.loaders import drop_file

    pages = int(data.setting("pages", str(PAGES)))
    found: dict[str, list[Pace]] = {name: [] for name in CONTENDERS}
    peaks = dict.fromkeys(CONTENDERS, 0)
    with limited(MEMORY, DISK, data.work_folder) as groups:
        with fresh_process(None) as process:
            file = process.submit(fill, data.work_folder, pages, groups).result()
        peak = groups[0] / "memory.max_usage_in_bytes"
        for _ in range(data.rounds):
            for name in CONTENDERS:
                drop_file(file)
                peak.write_text("0")
                with fresh_process(None) as process:
                    found[name].append(process.submit(read, name, data.work_folder, file, pages, groups).result())
                peaks[name] = max(peaks[name], int(peak.read_text()))
        counted = dict(line.split() for line in (groups[0] / "memory.oom_control").read_text().splitlines())
    rates = {name: median(rate for pace in paces for rate in pace.rates) for name, paces in found.items()}
    caption = (
        f"{pages:,} pages of {PAGE_BYTES / 1e3:.0f} kB, {Figure(MEMORY, 'B')} of memory, a disk of "
        f"{Figure(DISK, 'B')}/s, median of {EPOCHS * data.rounds} epochs"
    )
    for name, rate in rates.items():
        cells = {
            "pages/s": Figure(rate),
            "MB/s": Figure(rate * PAGE_BYTES / 1e6),
            "of the file's pace": figure(rate / rates[FILE], at_least=PACE.get(name)),
            "peak of the group": Figure(peaks[name], "B"),
            "growth": Figure(max(pace.grown for pace in found[name]), "B"),
        }
        yield Row(name, cells, caption)
    yield f"Out-of-memory kills: {counted.get('oom_kill', 'not counted')}."


# -- in a process of its own; libraries are imported in the group


def fill(folder: Path, pages: int, groups: Sequence[Path]) -> Path:
    """Write pages and their cache; returns its file."""
    join(groups)
    write_pages(folder, pages)
    dataset = open_dataset(folder)
    dataset.fill_cache()
    return Path(dataset.cache.store.folder) / "data.mdb"


def write_pages(folder: Path, pages: int) -> None:
    """Images of noise with one word each."""
    import numpy as np
    from PIL import Image

    (folder / "images").mkdir()
    rng = np.random.default_rng(0)
    names = [f"{number:06d}.bmp" for number in range(pages)]
    for number, name in enumerate(names):
        if number < FILES:
            noise = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(noise).save(folder / "images" / name)
        else:
            os.link(folder / "images" / names[number % FILES], folder / "images" / name)
    word = {"points": [[20, 20], [200, 20], [200, 40], [20, 40]], "transcription": "noise"}
    (folder / "pages.json").write_text(json.dumps({"images": {name: {"words": {"1": word}} for name in names}}))


def open_dataset(folder: Path) -> Any:
    """The pages with their cache."""
    from benchmarks.harness import pin_threads
    from ocr.datasets import DBTransforms, OCRDataset
    from ocr.pipeline.device import Normalize
    from ocr.pipeline.prefix import Letterbox

    pin_threads(1)
    transform = DBTransforms([Letterbox(SIDE), Normalize()], normalize="device")
    kept = {"cache": "auto", "cache_folder": folder / "cache"}
    return OCRDataset(folder / "images", folder / "pages.json", transform, use_stored_maps=False, **kept)


def read(name: str, folder: Path, file: Path, pages: int, groups: Sequence[Path]) -> Pace:
    """What the process of one contender does."""
    join(groups)
    if name == FILE:
        return Pace([read_file(file, pages)], 0)
    from ocr.loader import Loader

    loader = Loader(open_dataset(folder), 16, 2, **CONTENDERS[name])
    rates, resident = [], []
    for _ in range(EPOCHS):
        rates.append(epoch_rate(loader))
        resident.append(resident_bytes())
    return Pace(rates, resident[-1] - resident[0])


def epoch_rate(loader: Any) -> float:
    """Pages per second of the first seconds of an epoch."""
    pages, start = 0, time.perf_counter()
    for batch in loader:
        pages += len(batch["images"])
        if time.perf_counter() - start > SECONDS:
            break
    return pages / (time.perf_counter() - start)


def read_file(file: Path, pages: int) -> float:
    """Pages per second if all bytes are read in order."""
    start, memory = time.perf_counter(), bytearray(1 << 20)
    with file.open("rb", buffering=0) as stream:
        while stream.readinto(memory):
            pass
    return pages / (time.perf_counter() - start)


def resident_bytes() -> int:
    """Memory of this process that is not pages of files."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
