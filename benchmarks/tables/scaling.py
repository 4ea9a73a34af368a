"""What follows for nodes from what a page takes: arithmetic over the rows of shards, epochs, the grid and scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.harness import Data, Figure, Place, Row, benchmark, rows_by_name

STEP_SECONDS, STEP_PAGES = 0.06, 16
"""A step of the GPU that the arithmetic is about."""
GPUS, CORES = 8, 16
"""Of a node."""
SHARDS = ("raw shards", "ready shards")
TRAINING, VALIDATION = "training, cache warm", "validation, cache warm"
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
    uses=("shards", "epochs", "numbers", "scale"),
)
def scaling(data: Data) -> Iterator[Row]:
    """Bytes and speed of a page on every way, and cores, network and storage of nodes."""
    read = rows_by_name(data.rows_of("shards"))
    stored = {name: read[name].value("a page") / 1e6 for name in SHARDS}
    stored["cache"] = rows_by_name(data.rows_of("numbers"))["kept per page"].value("this checkout") / 1e6
    # Two threads on two cores, halved.
    speed = {name: read[name].value("read") / 2 for name in ("folder", *SHARDS)}
    speed |= {name: rate / 2 for name, rate in epoch_rates(data).items()}
    written = {name: read[name].value("written") / 2 for name in SHARDS}
    yield from page_rows(stored, speed, written, data)
    yield from node_rows(stored, speed)
    yield from set_rows(stored, speed)


def epoch_rates(data: Data) -> dict[str, float]:
    """Pages per second of epochs with a cache."""
    rows = data.rows_of("epochs")
    counts = [int(word) for word in rows[0].caption.split() if word.isdigit()][:2]

    def seconds(name: str) -> float:
        cell = next(row for row in rows if row.name.startswith(name)).cells["uint8"]
        return cell.measured.value  # type: ignore[union-attr]

    return {TRAINING: counts[1] / seconds("training epoch"), VALIDATION: counts[0] / seconds("later validation")}


def page_rows(stored: Numbers, speed: Numbers, written: Numbers, data: Data) -> Iterator[Row]:
    def row(name: str, size: str, rate: float | None = None) -> Row:
        return Row(name, {"bytes per page": size, "pages/s per core": Figure(rate) if rate else None}, PAGE)

    for name in ("folder", *SHARDS):
        yield row(name, f"{stored.get(name, stored['raw shards']):.2f} MB read", speed[name])
    yield row(f"{TRAINING}, augmented", f"{stored['cache']:.2f} MB kept", speed[TRAINING])
    yield row(VALIDATION, f"{stored['cache']:.2f} MB kept", speed[VALIDATION])
    for name in SHARDS:
        yield row(f"converted to {name}", f"{stored[name]:.2f} MB written", written[name])
    for kind in ("folder", "shards"):
        kept = [one for one in data.rows_of("scale") if one.name == kind][-1]
        yield row(
            "the rows of a folder" if kind == "folder" else "the rows of shards",
            f"{kept.value('file, bytes/page'):.0f} bytes on disk, 12 in memory",
        )


def node_rows(stored: Numbers, speed: Numbers) -> Iterator[Row]:
    pages = STEP_PAGES / STEP_SECONDS
    first, every = "in the first epoch only", "every epoch"
    for name, rate, kept, read, when in (
        ("raw shards or folder, nothing cached", "folder", "raw shards", "raw shards", every),
        ("training, cached on the node", TRAINING, "cache", "raw shards", first),
        ("validation, cached on the node", VALIDATION, "cache", "raw shards", first),
        ("validation, ready shards", "ready shards", "ready shards", "ready shards", every),
    ):
        network = f"{pages:.0f} x {stored[read]:.2f} MB = {pages * stored[read] * 8 / 1e3:.1f} Gbit/s, {when}"
        cells = {
            "cores per GPU": f"{pages:.0f} / {speed[rate]:.0f} = {pages / speed[rate]:.1f}",
            "network per GPU": network,
            "storage per million pages": f"{stored[kept]:.2f} TB",
        }
        yield Row(name, cells, NODE)


def set_rows(stored: Numbers, speed: Numbers) -> Iterator[Row]:
    """How long an epoch of millions of pages takes, and what a node holds of them."""
    page, consumed = stored["raw shards"], GPUS * STEP_PAGES / STEP_SECONDS
    for name, arithmetic in (
        ("GPUs of a node consume, pages/s", f"{GPUS} x {STEP_PAGES / STEP_SECONDS:.0f} = {consumed:,.0f}"),
        ("its cores load uncached, pages/s", f"{CORES} x {speed['folder']:.0f} = {CORES * speed['folder']:,.0f}"),
        (
            "its cores load from the cache, pages/s",
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
            "cache of all pages": f"{millions * stored['cache']:,.2f} TB",
        }
        yield Row(f"{millions:,} M", cells, SET)
