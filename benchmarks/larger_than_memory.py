"""A dense cache several times larger than the memory: pages per second of whole epochs, under the limit of a cgroup.

python benchmarks/larger_than_memory.py        # as root, with cgroup v1: 600 MB of memory, 2 GB of pages

The disk is limited too, so that it and not the cores sets the pace.

Every contender is a process of its own in the group, from its first import on, and starts with the file out of memory.
All take turns, and the median epoch of each counts. "reading the file" reads the same bytes from first to last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.limited_group import joining, limited

SIDE = 264
"""Noise of this side takes 209 kB: as much as a receipt of 640 x 640 in dense form."""
PAGE_BYTES = SIDE * SIDE * 3
FILES = 64
"""Different images; the other pages are links to them."""
CONTENDERS: dict[str, dict[str, Any]] = {
    "reading the file": {},
    "in order": {"shuffle": False},
    "shuffled, by faults": {"shuffle": True, "advice": "none"},
    "shuffled, page by page": {"shuffle": True, "advice": "pages"},
    "shuffled, read ahead": {"shuffle": True},
    "blocks, read ahead": {"shuffle": True, "order": "blocks"},
}


def run_apart(arguments: argparse.Namespace, contender: str, groups: Sequence[Path] = ()) -> dict[str, Any]:
    """What one process measured; in the groups from its start."""
    options = ["--child", contender, "--folder", arguments.folder, "--pages", arguments.pages]
    options += ["--epochs", arguments.epochs, "--seconds", arguments.seconds, "--ahead-mb", arguments.ahead_mb]
    options += ["--engine", arguments.engine, "--file", arguments.file]
    command = [sys.executable, __file__, *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=joining(groups))
    try:
        shown = process.communicate()[0]
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        sys.exit(f"{contender}: the process ended with code {process.returncode}")
    found: dict[str, Any] = json.loads(shown.splitlines()[-1])
    return found


def write_pages(folder: Path, pages: int) -> None:
    """Images of noise with one word each."""
    import numpy as np
    from PIL import Image

    (folder / "images").mkdir(parents=True, exist_ok=True)
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
    """The pages with their dense cache."""
    from benchmarks.epoch_process import give_same_chances
    from ocr.datasets import DBTransforms, OCRDataset
    from ocr.pipeline.device import Normalize
    from ocr.pipeline.prefix import Letterbox

    give_same_chances()
    transform = DBTransforms([Letterbox(SIDE), Normalize()], normalize="device")
    kept = {"cache": "prefix", "cache_form": "dense", "cache_folder": folder / "cache"}
    return OCRDataset(folder / "images", folder / "pages.json", transform, use_stored_maps=False, **kept)


def resident_bytes() -> int:
    """Memory of this process that is not pages of files."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def measure_child(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the process of one contender does."""
    if arguments.child == "fill":
        if not (arguments.folder / "pages.json").exists():
            write_pages(arguments.folder, arguments.pages)
        dataset = open_dataset(arguments.folder)
        dataset.fill_cache()
        return {"file": str(dataset.cache.store().folder / "data")}
    if arguments.child == "reading the file":
        return {"pages_per_second": [read_file(arguments.file, arguments.pages)], "resident": [resident_bytes()]}
    from ocr.cache import readahead, store
    from ocr.loader import Loader

    settings: dict[str, Any] = dict(CONTENDERS[arguments.child])
    advice = settings.pop("advice", "order")
    if advice == "none":
        store.CAN_ADVISE = False
    dataset = open_dataset(arguments.folder)
    if advice == "pages":
        dataset.read_ahead = lambda samples: None
    if arguments.ahead_mb:
        readahead.MAX_AHEAD_BYTES = int(arguments.ahead_mb * (1 << 20))
        readahead.FREE_SHARE = 1
    loader = Loader(dataset, 16, 2, engine=arguments.engine, **settings)
    found: dict[str, Any] = {"pages_per_second": [], "resident": []}
    for _ in range(arguments.epochs):
        found["pages_per_second"].append(epoch_rate(loader, arguments.seconds))
        found["resident"].append(resident_bytes())
    return found


def epoch_rate(loader: Any, seconds: float) -> float:
    """Pages per second of an epoch, or of its first seconds."""
    pages, start = 0, time.perf_counter()
    for batch in loader:
        pages += len(batch["images"])
        if time.perf_counter() - start > seconds:
            break
    return pages / (time.perf_counter() - start)


def read_file(file: Path, pages: int) -> float:
    """Pages per second if all bytes are read in order."""
    start, memory = time.perf_counter(), bytearray(1 << 20)
    with file.open("rb", buffering=0) as stream:
        while stream.readinto(memory):
            pass
    return pages / (time.perf_counter() - start)


def measure(arguments: argparse.Namespace, groups: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """All rounds of all contenders."""
    from benchmarks.measure import drop_file

    peak = groups[0] / "memory.max_usage_in_bytes"
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.only or CONTENDERS}
    for _ in range(arguments.rounds):
        for name, found in rounds.items():
            drop_file(arguments.file)
            peak.write_text("0")
            found.append(run_apart(arguments, name, groups))
            found[-1]["peak"] = int(peak.read_text())
            print(name, found[-1], file=sys.stderr)
    return rounds


def show(rounds: dict[str, list[dict[str, Any]]], group: Path) -> None:
    """One line per contender, and what the group counted."""
    from rich.table import Table

    from benchmarks.measure import console

    rates = {
        name: statistics.median(rate for one in found for rate in one["pages_per_second"])
        for name, found in rounds.items()
    }
    headings = ("", "pages/s", "MB/s", "of the file's pace", "peak of the group", "growth")
    table = Table(*headings, title="A cache larger than memory", title_justify="left")
    for name, found in rounds.items():
        growth = max(one["resident"][-1] - one["resident"][0] for one in found)
        ratio = rates[name] / rates.get("reading the file", rates[name])
        shown = f"{rates[name]:,.0f}", f"{rates[name] * PAGE_BYTES / 1e6:,.0f}", f"{ratio:.2f}"
        peak = max(one["peak"] for one in found)
        table.add_row(name, *shown, f"{peak / 1e6:,.0f} MB", f"{growth / 1e6:+.1f} MB")
    console.print(table)
    counts = dict(line.split() for line in (group / "memory.oom_control").read_text().splitlines())
    console.print(f"out-of-memory kills: {counts.get('oom_kill', 'not counted')}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-mb", type=int, default=600, help="memory of the group (default: 600)")
    parser.add_argument("--disk-mb", type=int, default=60, help="MB per second of the disk (default: 60)")
    parser.add_argument("--pages", type=int, default=9600, help="pages of 209 kB (default: 9600, 2 GB)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender (default: 3)")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of each process (default: 2)")
    parser.add_argument("--seconds", type=float, default=15, help="longest epoch (default: 15)")
    parser.add_argument("--engine", default="threads", help="threads or processes (default: threads)")
    parser.add_argument("--ahead-mb", type=float, default=0, help="how far to read ahead (default: as the loader does)")
    parser.add_argument("--only", action="append", choices=[*CONTENDERS], help="this contender; may be repeated")
    parser.add_argument("--folder", type=Path, help="keep pages and cache there for the next run")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure_child(arguments)))
        return 0
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    kept, arguments.folder = arguments.folder, arguments.folder or Path(tempfile.mkdtemp(prefix="glyphfeed-large-"))
    try:
        limits = arguments.limit_mb * 10**6, arguments.disk_mb * 10**6
        with limited(*limits, arguments.folder) as groups:
            arguments.file = Path(run_apart(arguments, "fill")["file"])
            show(measure(arguments, groups), groups[0])
    finally:
        if kept is None:
            shutil.rmtree(arguments.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
