"""What a set of 10^4 to 10^7 pages costs before the first image is read: opening, an epoch's order, resuming, a step.

The rows of the pages are generated, and no image is needed. Each size is measured in a process of its own, which
reports its memory beyond that of a small set. Times are CPU seconds, so that they hold on a busy machine too. A step is
the plan of one batch and what is known about its pages.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Data, Figure, Result, Row, benchmark, figure, fresh_process
from benchmarks.pictures import picture

BATCH, WORDS, PAGES_PER_SHARD, STEPS, SMALL = 16, 10, 1000, 200, 6000
SIZES = "10000,100000,1000000,10000000"
FORMAT, NUMBER = "jpg", "99999999"
LARGE, OPENING, MEMORY = 10**7, 0.5, 16
"""At this many pages: seconds of opening, and bytes of a page in the memory of a process, at most."""


@benchmark(
    "scale",
    table="scaling#scale",
    pages=(),
    pictures={"pictures/scale.png": lambda result, target: draw(result, target)},
)
def scale(data: Data) -> Iterator[Row]:
    """Opening, ordering, resuming and a step, by the number of pages."""
    for kind in WRITERS:
        for pages in map(int, data.setting("pages", SIZES).split(",")):
            base = data.work_folder / f"{kind}-{pages}"
            prepare(base)
            with fresh_process() as process:
                process.submit(WRITERS[kind], base, pages).result()
            with fresh_process() as process:
                cells = process.submit(measure, kind, base, pages, data.rounds).result()
            size = sum(path.stat().st_size for path in (base / "cache/pages").iterdir())
            shutil.rmtree(base)
            yield Row(kind, {"pages": Figure(pages), **cells, "file, bytes/page": Figure(size / pages)})


def prepare(base: Path) -> None:
    """The files that the rows are said to be made of."""
    (base / "images").mkdir(parents=True)
    for name in ("a.json", "train-index.json"):
        (base / name).write_text("{}")
    time.sleep(2.1)  # Younger files prove nothing.


def draw(result: Result, target: Path) -> None:
    """Cost against size, one line per kind of set."""
    names = ("open", "order", "step", "memory, MB")
    with picture(target, 1, len(names), figsize=(12, 3)) as (_, axes):
        for axis, name in zip(axes, names, strict=True):
            for kind in WRITERS:
                rows = [row for row in result.rows if row.name == kind]
                costs = [max(row.value(name), 1e-4) for row in rows]
                axis.plot([row.value("pages") for row in rows], costs, marker="o", label=kind)
            unit = "" if "," in name else ", s"
            axis.set(title=f"{name}{unit}", xlabel="pages", xscale="log", yscale="log")
            axis.grid(alpha=0.3)
        axes[0].legend()


# -- in a process of its own


def write_folder(base: Path, pages: int) -> None:
    """The kept rows of a folder."""
    import numpy as np

    from ocr.geometry.polygons import Polygons
    from ocr.pipeline.folder_split import FolderSplit
    from ocr.pipeline.kept_table import KeptTable, state_of
    from ocr.pipeline.page_rows import Entry, PageRows
    from ocr.pipeline.source import FolderSource
    from ocr.row_table import RowTableWriter

    split = FolderSplit(base / "images", base / "a.json", "auto", "auto", "raise")
    box = np.array([[10, 20], [110, 20], [110, 40], [10, 40]])
    polygons = Polygons.pack([box + number for number in range(WORDS)], texts=[f"word {n}" for n in range(WORDS)])
    kept = KeptTable(base / "cache/pages", FolderSource.__module__, Path.cwd(), split, (f".{FORMAT}",))
    row = PageRows.of([Entry(f"page-{NUMBER}.{FORMAT}", polygons, (800, 1000))]).table.row(0)
    writer = RowTableWriter()
    for number in range(pages):
        writer.append(row.replace(NUMBER.encode(), b"%08d" % number))
    made_of = {str(path): state_of(str(path)) for path in (split.folder, base / "a.json")}
    assert kept.keep(writer, made_of, {"skipped": {}, "notes": [], "names": ""}).path is not None


def write_shards(base: Path, pages: int) -> None:
    """The kept rows of an index of shards, without the shards."""
    from ocr.pipeline.kept_table import KeptTable
    from ocr.pipeline.signature import file_signature
    from ocr.row_table import RowTableWriter
    from ocr.shards.index import RAW, SampleRowsWriter, ShardIndex, StoredSample

    location = str(base / "train-index.json")
    kept = KeptTable(base / "cache/pages", ShardIndex.__module__, Path.cwd(), location)
    places = {FORMAT: (512, 400_000), "json": (400_896, 3000)}
    sample = StoredSample(NUMBER, f"page-{NUMBER}.{FORMAT}", 0, places, "0" * 32, "1" * 32)
    row = SampleRowsWriter().append(sample)
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


def open_pages(kind: str, base: Path, pages: int) -> Any:
    """The dataset, as training opens it."""
    from ocr.datasets import DBTransforms, OCRDataset, OCRWebDataset
    from ocr.pipeline.prefix import Letterbox

    transform = DBTransforms([Letterbox(640)], normalize="device")
    kept = {"cache": "off", "cache_folder": base / "cache"}
    if kind == "folder":
        return OCRDataset(base / "images", base / "a.json", transform, [FORMAT], **kept)
    last = -(-pages // PAGES_PER_SHARD) - 1
    return OCRWebDataset(f"{base}/train-{{000000..{last:06d}}}.tar", transform, **kept)


def measure(kind: str, base: Path, pages: int, rounds: int) -> dict[str, Any]:
    """The row of a set."""
    from ocr.loader.order import EpochBatches

    small = base / "small"
    prepare(small)
    WRITERS[kind](small, SMALL)
    open_pages(kind, small, SMALL)  # Imports, and the digest of the code.
    before = resident()
    opened, dataset = cpu_seconds(lambda: open_pages(kind, base, pages), rounds)
    order = dataset.epoch_order if kind == "shards" else None
    batches = EpochBatches(len(dataset), BATCH, shuffle=True, drop_last=True, order=order)
    ordered, plan = cpu_seconds(lambda: batches.batches(0, 0), rounds)
    rows = dataset.source.entries if kind == "folder" else dataset.source.index.samples

    def steps() -> None:
        for _ in range(STEPS):
            for index in next(plan):
                _ = rows[index]

    stepped = cpu_seconds(steps, rounds)[0] / STEPS
    del plan
    batches.resume(1, len(batches) // 2)
    resumed, plan = cpu_seconds(lambda: batches.batches(*batches.position), rounds)
    next(plan)
    private, mapped = (after - earlier for after, earlier in zip(resident(), before, strict=True))
    large = pages >= LARGE
    return {
        "open": figure(opened, "s", at_most=OPENING if large else None),
        "order": Figure(ordered, "s"),
        "resume": Figure(resumed, "s"),
        "step": Figure(stepped, "s"),
        "memory, MB": figure(private / 1e6, at_most=MEMORY * pages / 1e6 if large else None),
        "shared, MB": Figure(mapped / 1e6),
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


def resident() -> tuple[int, int]:
    """Bytes of this process: its own, and those of mapped files, which all processes of the machine share."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    found = {words[0]: int(words[1]) << 10 for words in lines if words[0].startswith("Rss")}
    return found["RssAnon:"] + found["RssShmem:"], found["RssFile:"]
