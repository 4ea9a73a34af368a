"""What follows for nodes from what a page takes: arithmetic over the rows of shards, epochs, the grid and scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.harness import Data, Figure, Place, Row, benchmark, rows_by_name

STEP_SECONDS, STEP_PAGES = 0.06, 16
"""A step of the GPU that the arithmetic is about."""
GPUS, CORES = 8, 16
"""Of a node."""
PAGE_MB, SAMPLE_MB = 1.2, 5.2
"""640 x 640 x 3 bytes, and with its four maps."""
COPIED = "ready batches, copied"
SHARDS = {"raw shards": "raw shards", "dense ready shards": "ready shards, dense", "ready shards": "ready shards, raw"}
TRAINING, VALIDATION = "training, page cache warm", "validation, cached, every tensor copied"
SETS = ((1, 1), (10, 1), (10, 8), (100, 64), (1000, 64))
"""Millions of pages, and nodes."""
PAGE, NODE, CONSUMED, SET = "A page", "A GPU", "A node's GPUs and cores", "A node's share of a set"
Numbers = Mapping[str, float]


@benchmark(
    "scaling",
    table=[
        Place("scaling#page", caption=PAGE),
        Place("scaling#node", caption=NODE),
        Place("scaling#sets", caption="A node"),
    ],
    pages=(),
    uses=("shards", "epochs", "scale"),
)
def scaling(data: Data) -> Iterator[Row]:
    """Bytes and speed of a page on every way, and cores, network and storage of nodes."""
    read = rows_by_name(data.rows_of("shards"))
    stored = {name: read[name].value("a page") / 1e6 for name in (*SHARDS, "ready batches")}
    reads = {"folder": stored["raw shards"], COPIED: stored["ready batches"], **{name: stored[name] for name in SHARDS}}
    # Two threads on two cores, halved.
    speed = {name: read[name].value("read") / 2 for name in reads}
    speed |= {name: rate / 2 for name, rate in epoch_rates(data).items()}
    written = {name: read[name].value("written") / 2 for name in SHARDS}
    yield from page_rows(reads, speed, written, data)
    yield from node_rows(reads, speed)
    yield from set_rows(reads, speed)


def epoch_rates(data: Data) -> dict[str, float]:
    """Pages per second of epochs with a cache."""
    rows = data.rows_of("epochs")
    counts = [int(word) for word in rows[0].caption.split() if word.isdigit()][:2]

    def seconds(name: str) -> float:
        cell = next(row for row in rows if row.name.startswith(name)).cells["uint8"]
        return cell.measured.value  # type: ignore[union-attr]

    return {TRAINING: counts[1] / seconds("training epoch"), VALIDATION: counts[0] / seconds("- every tensor")}


def page_rows(reads: Numbers, speed: Numbers, written: Numbers, data: Data) -> Iterator[Row]:

    def row(name: str, stored: str, rate: float | None = None) -> Row:
        return Row(name, {"bytes per page": stored, "pages/s per core": Figure(rate) if rate else None}, PAGE)

    for name, size in reads.items():
        yield row(SHARDS.get(name, name), f"{size:.2f} MB read", speed[name])
    yield row(f"{TRAINING}, augmented", f"{PAGE_MB} MB kept", speed[TRAINING])
    yield row(VALIDATION, f"{SAMPLE_MB} MB kept", speed[VALIDATION])
    for name, shown in SHARDS.items():
        yield row(f"converted to {shown}", f"{reads[name]:.2f} MB written", written[name])
    for kind in ("folder", "shards"):
        kept = [one for one in data.rows_of("scale") if one.name == kind][-1]
        yield row(
            "the rows of a folder" if kind == "folder" else "the rows of shards",
            f"{kept.value('file, bytes/page'):.0f} bytes on disk, 12 in memory",
        )


def node_rows(reads: Numbers, speed: Numbers) -> Iterator[Row]:
    pages = STEP_PAGES / STEP_SECONDS
    first, every = "in the first epoch only", "every epoch"
    for name, rate, stored, read, when in (
        ("raw shards or folder, nothing cached", "folder", reads["raw shards"], "raw shards", every),
        ("page cache on the node", TRAINING, PAGE_MB, "raw shards", first),
        ("validation cached", VALIDATION, SAMPLE_MB, "raw shards", first),
        (
            "ready shards, dense, validation",
            "dense ready shards",
            reads["dense ready shards"],
            "dense ready shards",
            every,
        ),
        ("ready shards, raw, validation", "ready shards", reads["ready shards"], "ready shards", every),
    ):
        network = f"{pages:.0f} x {reads[read]:.2f} MB = {pages * reads[read] * 8 / 1e3:.1f} Gbit/s, {when}"
        cells = {
            "cores per GPU": f"{pages:.0f} / {speed[rate]:.0f} = {pages / speed[rate]:.1f}",
            "network per GPU": network,
            "storage per million pages": f"{stored:.2f} TB",
        }
        yield Row(name, cells, NODE)


def set_rows(reads: Numbers, speed: Numbers) -> Iterator[Row]:
    """How long an epoch of millions of pages takes, and what a node holds of them."""
    page, consumed = reads["raw shards"], GPUS * STEP_PAGES / STEP_SECONDS
    for name, arithmetic in (
        ("GPUs of a node consume, pages/s", f"{GPUS} x {STEP_PAGES / STEP_SECONDS:.0f} = {consumed:,.0f}"),
        ("its cores load uncached, pages/s", f"{CORES} x {speed['folder']:.0f} = {CORES * speed['folder']:,.0f}"),
        (
            "its cores load from a page cache, pages/s",
            f"{CORES} x {speed[TRAINING]:.0f} = {CORES * speed[TRAINING]:,.0f}",
        ),
        ("it reads uncached", f"{consumed:,.0f} x {page:.2f} MB = {consumed * page * 8 / 1e3:.1f} Gbit/s"),
    ):
        yield Row(name, {"arithmetic": arithmetic}, CONSUMED)
    for millions, nodes in SETS:
        cells = {
            "raw bytes": f"{millions * page:.3g} TB",
            "nodes": nodes,
            "E": f"{millions * 1e6 / nodes / consumed / 60:.0f} min",
            "pages per node and epoch": f"{millions / nodes:.3g} M",
            "page cache of all pages": f"{millions * PAGE_MB:,.1f} TB",
        }
        yield Row(f"{millions:,} M", cells, SET)
