"""What a set of 10^4 to 10^7 pages costs before the first image is read: opening, an epoch's order, resuming, a step.

    python benchmarks/scale.py [--pages 10000 100000 1000000 10000000] [--plot docs/pictures/scale.png]

The rows of the pages are generated, and no image is needed. Each size is measured in a process of its own, which
reports its memory beyond that of a small set. Times are CPU seconds, the fastest of three, so that they hold on a busy
machine too. "step" is the plan of one batch and what is known about its pages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console

BATCH, WORDS, PAGES_PER_SHARD, STEPS = 16, 10, 1000, 200
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
KINDS = ("folder", "shards")
FIGURES = ("open s", "order s", "resume s", "step us", "private MB", "mapped MB")
FORMAT, NUMBER = "jpg", "99999999"
Found = dict[str, float]


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
    kept = KeptTable(base / "cache" / "pages", FolderSource.__module__, Path.cwd(), split, (f".{FORMAT}",))
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
    from ocr.shards.index import RAW, ShardIndex
    from ocr.shards.sample_rows import SampleRows, StoredSample

    location = str(base / "train-index.json")
    kept = KeptTable(base / "cache" / "pages", ShardIndex.__module__, Path.cwd(), location)
    places = {FORMAT: (512, 400_000), "json": (400_896, 3000)}
    sample = StoredSample(NUMBER, f"page-{NUMBER}.{FORMAT}", 0, places, "0" * 32, "1" * 32)
    table = SampleRows.of([sample]).table
    row, writer = table.row(0), RowTableWriter({"shard": "i", "number": "q", "position": "i"})
    for number in range(pages):
        writer.append(row.replace(NUMBER.encode(), b"%08d" % number), number // PAGES_PER_SHARD, number, 0)
    shards = [
        {"name": f"train-{number:06d}.tar", "bytes": 4 * 10**8, "sha256": "0" * 64, "samples": PAGES_PER_SHARD}
        for number in range(-(-pages // PAGES_PER_SHARD))
    ]
    about = {"split": "train", "kind": RAW, "annotated": True, "source": "a", "stages": "", "shards": shards}
    about |= {"names": "", "own_keys": True, "in_order": True}
    assert kept.keep(writer, {location: file_signature(location)}, about).path is not None


def open_pages(kind: str, base: Path, pages: int) -> Any:
    """The dataset, as training opens it."""
    from ocr.datasets import DBTransforms, OCRDataset, OCRWebDataset
    from ocr.pipeline.prefix import Letterbox

    transform = DBTransforms([Letterbox(640)], normalize="device")
    if kind == "folder":
        extensions = [FORMAT]
        return OCRDataset(
            base / "images", base / "a.json", transform, extensions, cache="off", cache_folder=base / "cache"
        )
    last = -(-pages // PAGES_PER_SHARD) - 1
    return OCRWebDataset(
        f"{base}/train-{{000000..{last:06d}}}.tar", transform, cache="off", cache_folder=base / "cache"
    )


def resident() -> tuple[float, float]:
    """Megabytes of this process: its own, and those of mapped files, which all processes of the machine share."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    kilobytes = {words[0]: int(words[1]) for words in lines if words[0].startswith("Rss")}
    return (kilobytes["RssAnon:"] + kilobytes["RssShmem:"]) / 1024, kilobytes["RssFile:"] / 1024


def timed(action: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """CPU seconds of the fastest round, and what the last one returned."""
    best, made = float("inf"), None
    for _ in range(rounds):
        made = None  # Before the next one is made: memory holds one of them.
        begun = time.process_time()
        made = action()
        best = min(best, time.process_time() - begun)
    return best, made


def measure(kind: str, base: Path, pages: int) -> Found:
    """All figures of one set, in this process."""
    from ocr.loader.order import EpochBatches

    small = Path(tempfile.mkdtemp(dir=base.parent))
    prepare(small)
    {"folder": write_folder, "shards": write_shards}[kind](small, 6000)
    open_pages(kind, small, 6000)  # Imports, and the digest of the code.
    before = resident()
    opened, dataset = timed(lambda: open_pages(kind, base, pages))
    order = dataset.epoch_order if kind == "shards" else None
    batches = EpochBatches(len(dataset), BATCH, shuffle=True, drop_last=True, order=order)
    ordered, plan = timed(lambda: batches.batches(0, 0))

    def step() -> None:
        for index in next(plan):
            _ = dataset.source.entries[index] if kind == "folder" else dataset.source.index.samples[index]

    stepped = timed(lambda: [step() for _ in range(STEPS)])[0] / STEPS
    del plan
    batches.resume(1, len(batches) // 2)
    resumed, plan = timed(lambda: batches.batches(*batches.position))
    next(plan)
    private, mapped = (after - earlier for after, earlier in zip(resident(), before, strict=True))
    figures = (opened, ordered, resumed, stepped * 1e6, private, mapped)
    return dict(zip(FIGURES, figures, strict=True))


def prepare(base: Path) -> None:
    """The files that the rows are said to be made of."""
    (base / "images").mkdir(parents=True)
    for name in ("a.json", "train-index.json"):
        (base / name).write_text("{}")
    time.sleep(2.1)  # Younger files prove nothing.


def measure_apart(kind: str, pages: int) -> Found:
    """The figures of one set, from a process that wrote it and one that opens it."""
    with tempfile.TemporaryDirectory(prefix="glyphfeed-scale-") as folder:
        base = Path(folder) / "set"
        prepare(base)
        for part in ("write", "measure"):
            command = [sys.executable, __file__, "--part", part, kind, str(base), str(pages)]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        size = sum(path.stat().st_size for path in (base / "cache" / "pages").iterdir())
        found: Found = json.loads(told)
        return found | {"file bytes/page": size / pages}


def plot(found: dict[str, dict[int, Found]], target: Path) -> None:
    """Cost against size, one line per kind of set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = ("open s", "order s", "step us", "private MB")
    figure, axes = pyplot.subplots(1, len(names), figsize=(12, 3), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        for kind, by_size in found.items():
            axis.plot(list(by_size), [max(figures[name], 1e-4) for figures in by_size.values()], marker="o", label=kind)
        axis.set(title=name, xlabel="pages", xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(target, dpi=110)


def show(found: dict[str, dict[int, Found]]) -> None:
    """One row per set."""
    names = (*FIGURES, "file bytes/page")
    table = Table(title="Before the first image is read", title_justify="left")
    for heading in ("set", "pages", *names):
        table.add_column(heading, justify="right")
    for kind, by_size in found.items():
        for pages, figures in by_size.items():
            table.add_row(kind, f"{pages:,}", *(f"{figures[name]:.3g}" for name in names))
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every kind and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, nargs="+", default=SIZES, help="sizes of the sets")
    parser.add_argument("--plot", type=Path, help="draw the figures into this file")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part:
        part, kind, base, pages = given.part[0], given.part[1], Path(given.part[2]), int(given.part[3])
        write = {"folder": write_folder, "shards": write_shards}[kind]
        if part == "write":
            write(base, pages)
        else:
            print(json.dumps(measure(kind, base, pages)))
        return
    found = {kind: {pages: measure_apart(kind, pages) for pages in given.pages} for kind in KINDS}
    show(found)
    if given.json:
        given.json.write_text(json.dumps(found))
    if given.plot:
        plot(found, given.plot)


if __name__ == "__main__":
    main()
