"""What is large: sets of ten million pages, a cache beyond the memory, and pages beyond what a detector has seen."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Data, Figure, Result, Row, Target, benchmark, figure, fresh_process, pin_threads
from benchmarks.loaders import drop_file, peak_bytes, split_paths
from benchmarks.pictures import picture
from ocr import DBTransforms, Detector, Loader, OCRDataset
from ocr.datasets import OCRWebDataset
from ocr.errors import ConfigError
from ocr.evaluation.hmean import HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.jobs.export import folder_pages
from ocr.loader.order import EpochBatches
from ocr.models.packaged import PACKAGED
from ocr.pipeline.decode import Decode
from ocr.pipeline.device import Normalize
from ocr.pipeline.page_index import Entry, FolderSplit, KeptTable, PageRows, file_signature, state_of
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import FolderSource
from ocr.row_table import RowTableWriter
from ocr.shards.index import RAW, SampleRowsWriter, ShardIndex, StoredSample

# -- sets: opening, an epoch's order, resuming, a step. The rows of the pages are generated, and no image is needed.
# Each size is measured in a process of its own, in CPU seconds; memory is beyond that of a small set.

BATCH, WORDS, PAGES_PER_SHARD, STEPS, SMALL = 16, 10, 1000, 200, 6000
SIZES = "10000,100000,1000000,10000000"
NAME, NUMBER = "page-99999999.jpg", "99999999"
LARGE, OPENING, MEMORY = 10**7, 0.5, 16
"""At this many pages: seconds of opening, and bytes of a page in the memory of a process, at most."""


def draw(result: Result, target: Path) -> None:
    """Cost against size, a line per kind of set."""
    names = ("open", "order", "step", "memory, MB")
    with picture(target, 1, len(names), figsize=(12, 3)) as (_, axes):
        for axis, name in zip(axes, names, strict=True):
            for kind in WRITERS:
                rows = [row for row in result.rows if row.name == kind]
                costs = [max(row.value(name), 1e-4) for row in rows]
                axis.plot([row.value("pages") for row in rows], costs, marker="o", label=kind)
            axis.set(title=name if "," in name else f"{name}, s", xlabel="pages", xscale="log", yscale="log")
            axis.grid(alpha=0.3)
        axes[0].legend()


@benchmark("scale", table="scale#scale", pages=(), pictures={"pictures/scale.png": draw})
def scale(data: Data) -> Iterator[Row]:
    """Opening, ordering, resuming and a step, by the number of pages; `--set scale.pages=10000,100000`."""
    for kind in WRITERS:
        for pages in map(int, data.setting("scale.pages", SIZES).split(",")):
            base = data.work_folder / f"{kind}-{pages}"
            with fresh_process() as process:
                process.submit(write, kind, base, pages).result()
            with fresh_process() as process:
                cells = process.submit(measure, kind, base, pages, data.rounds).result()
            size = sum(path.stat().st_size for path in (base / "cache/pages").iterdir())
            shutil.rmtree(base)
            yield Row(kind, {"pages": Figure(pages), **cells, "file, bytes/page": Figure(size / pages)})


def write(kind: str, base: Path, pages: int) -> None:
    """The rows of a set as a first run keeps them, and the files that they are said to be made of."""
    (base / "images").mkdir(parents=True)
    for name in ("a.json", "train-index.json"):
        (base / name).write_text("{}")
    time.sleep(2.1)  # Younger files prove nothing.
    WRITERS[kind](base, pages)


def write_folder(base: Path, pages: int) -> None:
    split = FolderSplit(base / "images", base / "a.json", "auto", "auto", "raise")
    box = np.array([[10, 20], [110, 20], [110, 40], [10, 40]])
    polygons = Polygons.pack([box + number for number in range(WORDS)], texts=[f"word {n}" for n in range(WORDS)])
    kept = KeptTable(base / "cache/pages", FolderSource.__module__, Path.cwd(), split, (".jpg",))
    row = PageRows.of([Entry(NAME, polygons, (800, 1000))]).table.row(0)
    writer = RowTableWriter()
    for number in range(pages):
        writer.append(row.replace(NUMBER.encode(), b"%08d" % number))
    made_of = {str(path): state_of(str(path)) for path in (split.folder, base / "a.json")}
    assert kept.keep(writer, made_of, {"skipped": {}, "notes": [], "names": ""}).path is not None


def write_shards(base: Path, pages: int) -> None:
    location = str(base / "train-index.json")
    kept = KeptTable(base / "cache/pages", ShardIndex.__module__, Path.cwd(), location)
    places = {"jpg": (512, 400_000), "json": (400_896, 3000)}
    row = SampleRowsWriter().append(StoredSample(NUMBER, NAME, 0, places, "0" * 32, "1" * 32))
    writer = RowTableWriter({"shard": "i", "number": "q"})
    for number in range(pages):
        writer.append(row.replace(NUMBER.encode(), b"%08d" % number), number // PAGES_PER_SHARD, number)
    shards = [
        {"name": f"train-{number:06d}.tar", "bytes": 4 * 10**8, "sha256": "0" * 64, "samples": PAGES_PER_SHARD}
        for number in range(-(-pages // PAGES_PER_SHARD))
    ]
    about = {"split": "train", "kind": RAW, "annotated": True, "stages": "", "shards": shards}
    about |= {"names": "", "own_keys": True}
    assert kept.keep(writer, {location: file_signature(location)}, about).path is not None


WRITERS = {"folder": write_folder, "shards": write_shards}


def open_set(kind: str, base: Path, pages: int) -> Any:
    """The dataset, as training opens it."""
    transform, kept = (
        DBTransforms([Letterbox(640)], normalize="device"),
        {"cache": "off", "cache_folder": base / "cache"},
    )
    if kind == "folder":
        return OCRDataset(base / "images", base / "a.json", transform, ["jpg"], **kept)
    return OCRWebDataset(f"{base}/train-{{000000..{-(-pages // PAGES_PER_SHARD) - 1:06d}}}.tar", transform, **kept)


def measure(kind: str, base: Path, pages: int, rounds: int) -> dict[str, Any]:
    """The row of a set."""
    write(kind, base / "small", SMALL)
    open_set(kind, base / "small", SMALL)  # Imports, and the digest of the code.
    before = resident("RssAnon", "RssShmem")
    opened, dataset = cpu_seconds(lambda: open_set(kind, base, pages), rounds)
    order = dataset.epoch_order if kind == "shards" else None
    batches = EpochBatches(len(dataset), BATCH, shuffle=True, drop_last=True, order=order)
    ordered, plan = cpu_seconds(lambda: batches.batches(0, 0), rounds)
    rows = dataset.source.entries if kind == "folder" else dataset.source.index.samples
    stepped, _ = cpu_seconds(lambda: [rows[index] for _ in range(STEPS) for index in next(plan)], rounds)
    del plan
    batches.resume(1, len(batches) // 2)
    resumed, plan = cpu_seconds(lambda: batches.batches(*batches.position), rounds)
    next(plan)
    is_large, used = pages >= LARGE, resident("RssAnon", "RssShmem") - before
    return {
        "open": figure(opened, "s", at_most=OPENING if is_large else None),
        "order": Figure(ordered, "s"),
        "resume": Figure(resumed, "s"),
        "step": Figure(stepped / STEPS, "s"),
        "memory, MB": figure(used / 1e6, at_most=MEMORY * pages / 1e6 if is_large else None),
    }


def cpu_seconds(action: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Those of the fastest round, and what the last one returned."""
    best, made = float("inf"), None
    for _ in range(rounds):
        made = None  # Before the next one is made: memory holds one of them.
        begun = time.process_time()
        made = action()
        best = min(best, time.process_time() - begun)
    return best, made


def resident(*kinds: str) -> int:
    """Bytes of this process, without pages of files."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(words[1]) << 10 for words in lines if words[0].rstrip(":") in kinds)


# -- a cache several times larger than the memory, on a slow disk: as root, with cgroup v1. Every contender is a process
# of its own in the group, and starts with the file out of memory.

SIDE, PAGES, FILES = 264, 9600, 64
"""Noise of this side takes as much as a receipt of 640 x 640 in dense form. So many files; the others are links."""
PAGE_BYTES = SIDE * SIDE * 3
GROUP_MEMORY, DISK = 600 * 10**6, 60 * 10**6
"""Bytes of the group and bytes per second, so that the disk and not the cores sets the pace."""
EPOCHS, SECONDS, PACE = 2, 6.0, 0.8
"""Of each process, and after how many seconds an epoch ends; the least share of the pace at which the file is read."""
FILE = "reading the file"
CONTENDERS: dict[str, dict[str, Any]] = {
    FILE: {},
    "in order": {"shuffle": False},
    "shuffled": {"shuffle": True},
    "shuffled, worker processes": {"shuffle": True, "engine": "processes"},
}


@benchmark("larger", table="results#larger", pages=(), threads=None)
def larger(data: Data) -> Iterator[Row | str]:
    """A cache larger than memory, on a slow disk; `--set larger.pages=9600`."""
    pages = int(data.setting("larger.pages", str(PAGES)))
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    grown = dict.fromkeys(CONTENDERS, 0)
    with limited(GROUP_MEMORY, DISK, data.work_folder) as groups:
        with fresh_process(None) as process:
            file = process.submit(fill, data.work_folder, pages, groups).result()
        for _ in range(data.rounds):
            for name in CONTENDERS:
                drop_file(file)
                with fresh_process(None) as process:
                    told, more = process.submit(read, name, data.work_folder, file, pages, groups).result()
                rates[name] += told
                grown[name] = max(grown[name], more)
        counted = dict(line.split() for line in (groups[0] / "memory.oom_control").read_text().splitlines())
    caption = (
        f"{pages:,} pages, {Figure(GROUP_MEMORY, 'B')} of memory, a disk of {Figure(DISK, 'B')}/s, median of epochs"
    )
    pace = median(rates[FILE])
    for name, told in rates.items():
        share = figure(median(told) / pace, at_least=None if name == FILE else PACE)
        cells = {"pages/s": Figure(median(told)), "of the file's pace": share, "growth": Figure(grown[name], "B")}
        yield Row(name, cells, caption)
    yield f"Out-of-memory kills: {counted.get('oom_kill', 'not counted')}."


@contextmanager
def limited(memory_bytes: int, disk_bytes: int, folder: Path) -> Iterator[list[Path]]:
    """Control groups with these limits, of memory and of reads per second from the disk of a folder."""
    device = folder.stat().st_dev
    limits = {
        "memory": ("memory.limit_in_bytes", str(memory_bytes)),
        "blkio": ("blkio.throttle.read_bps_device", f"{os.major(device)}:{os.minor(device)} {disk_bytes}"),
    }
    groups = [Path("/sys/fs/cgroup", kind, f"glyphfeed-{os.getpid()}") for kind in limits]
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
            for _ in range(100):  # Workers of a process that was killed end a little later.
                if not (group / "cgroup.procs").read_text():
                    break
                time.sleep(0.1)
            with suppress(OSError):  # The error that ended the block says more.
                group.rmdir()


def join(groups: Sequence[Path]) -> None:
    """This process is in the groups from now on."""
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def fill(folder: Path, pages: int, groups: Sequence[Path]) -> Path:
    """Write images of noise with one word each, and their cache; returns its file."""
    join(groups)
    (folder / "images").mkdir()
    rng, names = np.random.default_rng(0), [f"{number:06d}.bmp" for number in range(pages)]
    for number, name in enumerate(names):
        if number < FILES:
            cv2.imwrite(str(folder / "images" / name), rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
        else:
            os.link(folder / "images" / names[number % FILES], folder / "images" / name)
    word = {"points": [[20, 20], [200, 20], [200, 40], [20, 40]]}
    (folder / "pages.json").write_text(json.dumps({"images": {name: {"words": {"1": word}} for name in names}}))
    dataset = open_noise(folder)
    dataset.fill_cache()
    return Path(dataset.cache.store.folder) / "data.mdb"  # type: ignore[union-attr]


def open_noise(folder: Path) -> OCRDataset:
    """The pages with their cache."""
    pin_threads(1)
    transform = DBTransforms([Letterbox(SIDE), Normalize()], normalize="device")
    kept: dict[str, Any] = {"cache": "auto", "cache_folder": folder / "cache"}
    return OCRDataset(folder / "images", folder / "pages.json", transform, use_stored_maps=False, **kept)


def read(name: str, folder: Path, file: Path, pages: int, groups: Sequence[Path]) -> tuple[list[float], int]:
    """Pages per second of each epoch, and bytes by which the process grows from the first to the last."""
    join(groups)
    if name == FILE:
        start, memory = time.perf_counter(), bytearray(1 << 20)
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(memory):
                pass
        return [pages / (time.perf_counter() - start)], 0
    loader = Loader(open_noise(folder), BATCH, 2, **CONTENDERS[name])
    rates, used = [], []
    for _ in range(EPOCHS):
        count, start = 0, time.perf_counter()
        for batch in loader:
            count += len(batch["images"])
            if time.perf_counter() - start > SECONDS:
                break
        rates.append(count / (time.perf_counter() - start))
        used.append(resident("RssAnon"))
    return rates, used[-1] - used[0]


# -- pages: H-mean in windows and shrunk whole, and the memory of 100 megapixels

COLUMNS, CELL, LONGEST, ENLARGED = 4, 2000, 10_000, 6
"""Pages side by side on a sheet and the longest side of each; longest side and number of the enlarged ones."""
SHEETS, PAGE_MEMORY = 0.75, 2e9
"""The least H-mean of sheets with tile=auto, and the most bytes of a process with a page of 100 megapixels."""
Page = tuple[NDArray[np.uint8], Polygons]


@benchmark("tiles", table="deploy#tiles", threads=None)
def tiles(data: Data) -> Iterator[Row]:
    """H-mean of very large pages, in windows and shrunk whole, and their memory; `--set tiles.model=best.ckpt`."""
    model, (images, labels) = data.setting("tiles.model", str(PACKAGED)), split_paths(data.receipts, "train")
    pages = [one.read(Decode(scaled="off")) for one in folder_pages(str(images), str(labels), COLUMNS**2, "--data")]
    whole, auto = (Detector.load(model, device="cpu", tile=tile) for tile in (None, "auto"))
    paper, enlarged = sheet(pages), [resized(page, LONGEST) for page in pages[:ENLARGED]]
    for name, made, least in (
        (f"{len(pages)} receipts on a sheet", [paper], SHEETS),
        (f"{len(enlarged)} receipts, enlarged", enlarged, None),
    ):
        shrunk, windows = hmean(whole, made), hmean(auto, made)
        # Windows must not lose what the whole page gives.
        tiled = Target(windows, at_least=least or shrunk - 0.005, digits=3)
        megapixels = Figure(float(np.mean([image.shape[0] * image.shape[1] for image, _ in made])) / 1e6)
        yield Row(name, {"megapixels": megapixels, "shrunk whole": Figure(shrunk, digits=3), "auto": tiled})
    file = data.work_folder / "page.png"
    cv2.imwrite(str(file), cv2.resize(paper[0], (LONGEST, LONGEST)))
    with fresh_process(None) as process:
        peak = Target(process.submit(peak_of, model, file).result(), "B", at_most=PAGE_MEMORY)
    yield Row("a PNG, the most memory of the process", {"megapixels": LONGEST**2 // 10**6, "auto": peak})


def sheet(pages: Sequence[Sample]) -> Page:
    """Many pages on one, each with CELL for its longest side."""
    image, labels = np.full((COLUMNS * CELL, COLUMNS * CELL, 3), 255, dtype=np.uint8), Polygons.pack([])
    for number, page in enumerate(pages):
        part, polygons = resized(page, CELL)
        top, left = (CELL * at for at in divmod(number, COLUMNS))
        image[top : top + part.shape[0], left : left + part.shape[1]] = part
        labels = labels.followed_by(polygons.moved(np.array([[1.0, 0, left], [0, 1, top], [0, 0, 1]])))
    return image, labels


def resized(page: Sample, longest: int) -> Page:
    """A page with another longest side."""
    factor = longest / max(page.shape)
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    image = cv2.resize(page.image, None, fx=factor, fy=factor, interpolation=how)
    return np.asarray(image, dtype=np.uint8), page.polygons.moved(np.diag([factor, factor, 1.0]))


def hmean(detector: Detector, pages: Sequence[Page]) -> float:
    """Over all pages together."""
    score = HmeanIoU()
    for image, labels in pages:
        score.update(detector(image).detections.polygons, labels)
    return float(score.compute()["hmean"])


def peak_of(model: str, file: Path) -> int:
    """The most bytes, with mapped files, of a process that finds the text of a file."""
    Detector.load(model, device="cpu")(str(file))
    return peak_bytes()
