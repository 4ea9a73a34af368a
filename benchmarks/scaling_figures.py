"""The tables of docs/scaling.md: what a page takes, measured, and what follows from it for nodes, computed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benchmarks.compare_tables import TextTable, figures_of, table_of

Found = Mapping[str, Sequence[TextTable]]
STEP_SECONDS, STEP_PAGES = 0.06, 16
"""A step of the GPU that the arithmetic is about."""
GPUS, CORES = 8, 16
"""Of a node."""
PAGE_MB, SAMPLE_MB = 1.2, 5.2
"""640 x 640 x 3 bytes, and with its four maps."""
SHARDS = {"raw shards": "raw shards", "dense ready shards": "ready shards, dense", "ready shards": "ready shards, raw"}
SETS = ((1, 1), (10, 1), (10, 8), (100, 64), (1000, 64))
"""Millions of pages, and nodes."""


def rates(found: Found) -> dict[str, float]:
    """Pages per second and core: two threads on two cores, halved."""
    read = table_of(found["shards"], "epochs of")
    names = {"folder": "folder", **SHARDS, "ready batches, copied": "ready batches, every tensor copied"}
    made = {name: figures_of(read.cell(row, "pages/s"))[0] / 2 for row, name in names.items()}
    epochs = table_of(found["epochs"], "Epochs of")
    val, train = (int(count) for count in re.findall(r"(\d+) (?:pages to validate|to train on)", epochs.title))
    training = epochs.pick("^training epoch", ("uint8",)).rows[0][1]
    copied = epochs.pick("^- every tensor copied out", ("uint8",)).rows[0][1]
    return made | {
        "training, page cache warm": train / figures_of(training)[0] / 2,
        "validation, cached": val / figures_of(copied)[0] / 2,
    }


def megabytes(found: Found) -> dict[str, float]:
    """What is read of a page; the images of a folder are those of raw shards."""
    files = table_of(found["shards"], "Files of shards")
    stored = {name: figures_of(files.cell(row, "MB per page"))[0] for row, name in SHARDS.items()}
    batches = figures_of(files.cell("ready batches", "MB per page"))[0]
    return {"folder": stored["raw shards"], "ready batches, every tensor copied": batches} | stored


def page_table(found: Found) -> list[TextTable]:
    """Bytes and speed of one page on every way."""
    reads, speed = megabytes(found), rates(found)
    files = table_of(found["shards"], "Files of shards")
    rows = [(name, f"{reads[name]:.2f} MB read", f"{speed[name]:,.0f}") for name in reads]
    rows.append(
        ("training, page cache warm, augmented", f"{PAGE_MB} MB kept", f"{speed['training, page cache warm']:,.0f}")
    )
    rows.append(
        ("validation, cached, every tensor copied", f"{SAMPLE_MB} MB kept", f"{speed['validation, cached']:,.0f}")
    )
    for row, name in SHARDS.items():
        written = figures_of(files.cell(row, "written, pages/s"))[0] / 2
        rows.append((f"converted to {name}", f"{reads[name]:.2f} MB written", f"{written:,.0f}"))
    scale = table_of(found["scale"], "Before the first image")
    for kind, name in (("folder", "the rows of a folder"), ("shards", "the rows of shards")):
        kept = next(row[-1] for row in scale.rows if row[:2] == (kind, "1,000,000"))
        rows.append((name, f"{kept} bytes on disk, 12 in memory", ""))
    return [TextTable("", ("", "bytes per page", "pages/s per core"), tuple(rows))]


def node_table(found: Found) -> list[TextTable]:
    """Cores, network and storage of one GPU."""
    reads, speed, pages = megabytes(found), rates(found), STEP_PAGES / STEP_SECONDS

    def row(name: str, rate: str, stored: float, read: str, when: str) -> tuple[str, ...]:
        cores = f"{pages:.0f} / {speed[rate]:.0f} = {pages / speed[rate]:.1f}"
        network = f"{pages:.0f} x {reads[read]:.2f} MB = {pages * reads[read] * 8 / 1e3:.1f} Gbit/s, {when}"
        return name, cores, network, f"{stored:.2f} TB"

    first, every = "in the first epoch only", "every epoch"
    rows = (
        row("raw shards or folder, nothing cached", "folder", reads["raw shards"], "raw shards", every),
        row("page cache on the node", "training, page cache warm", PAGE_MB, "raw shards", first),
        row("validation cached", "validation, cached", SAMPLE_MB, "raw shards", first),
        *(
            row(f"{name}, validation", name, reads[name], name, every)
            for name in ("ready shards, dense", "ready shards, raw")
        ),
    )
    return [TextTable("", ("", "cores per GPU", "network per GPU", "storage per million pages"), rows)]


def set_table(found: Found) -> list[TextTable]:
    """How long an epoch of millions of pages takes, and what a node holds of them."""
    bytes_of_page, per_node = megabytes(found)["raw shards"], GPUS * STEP_PAGES / STEP_SECONDS
    speed = rates(found)
    rows = [
        ("GPUs of a node consume, pages/s", f"{GPUS} x {STEP_PAGES / STEP_SECONDS:.0f} = {per_node:,.0f}"),
        ("its cores load uncached, pages/s", f"{CORES} x {speed['folder']:.0f} = {CORES * speed['folder']:,.0f}"),
        (
            "its cores load from a page cache, pages/s",
            f"{CORES} x {speed['training, page cache warm']:.0f} = {CORES * speed['training, page cache warm']:,.0f}",
        ),
        (
            "it reads uncached",
            f"{per_node:,.0f} x {bytes_of_page:.2f} MB = {per_node * bytes_of_page * 8 / 1e3:.1f} Gbit/s",
        ),
    ]
    sets = [
        (
            f"{millions:,} M",
            f"{millions * bytes_of_page:.3g} TB",
            str(nodes),
            f"{millions * 1e6 / nodes / per_node / 60:.0f} min",
            f"{millions / nodes:.3g} M",
            f"{millions * PAGE_MB:,.1f} TB",
        )
        for millions, nodes in SETS
    ]
    headings = ("pages", "raw bytes", "nodes", "E", "pages per node and epoch", "page cache of all pages")
    return [TextTable("", ("", "arithmetic"), tuple(rows)), TextTable("", headings, tuple(sets))]
