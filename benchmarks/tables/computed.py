"""Tables that are computed from others: the overview of the README, and what nodes need by what a page takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.harness import Data, Figure, Place, Result, Row, benchmark, rows_by_name
from ocr.errors import DataError


class Shown(NamedTuple):
    """A row of the overview: one cell of a benchmark."""

    name: str
    benchmark: str
    row: str
    column: str
    against: str = ""


SHORT = (
    Shown("H-mean of the bundled detector, lines of receipts", "scored", "lines of receipts, IoU 0.5", "H-mean"),
    Shown("H-mean of the bundled detector, words of forms", "scored", "words of forms, IoU 0.5", "H-mean"),
    Shown("a page without a cache, one thread", "path", "a cold page", "GlyphFeed", "Pillow, Albumentations, NumPy"),
    Shown("the target maps of a page", "path", "its maps", "GlyphFeed", "NumPy"),
    Shown("kept per page", "epochs", "kept per page", "GlyphFeed"),
    Shown("pages in their own shape, training", "shapes", "defaults: pages in their own shape", "training", "squares"),
)


@benchmark("in-short", table="README#in-short", pages=(), uses=tuple(dict.fromkeys(one.benchmark for one in SHORT)))
def in_short(data: Data) -> Iterator[Row]:
    """The bundled detector's scores and what a page takes."""
    for one in SHORT:
        result = Result.read(data.kept / f"{one.benchmark}.json")
        row = rows_by_name(result.rows).get(one.row)
        if row is None or one.column not in row.cells:
            raise DataError(f"{one.benchmark} has no row {one.row!r} with {one.column!r}", value=one.row)
        yield Row(one.name, {"command": f"`{result.command}`", "against": one.against, "figure": row.cells[one.column]})


STEP_SECONDS, STEP_PAGES = 0.06, 16
"""A step of the GPU that the arithmetic is about."""
GPUS, CORES = 8, 16
"""Of a node."""
SHARDS = ("raw shards", "ready shards")
TRAINING, VALIDATION = "training, cache warm", "validation, cache warm"
SETS = ((1, 1), (10, 1), (10, 8), (100, 64), (1000, 64))
"""Millions of pages, and nodes."""


@benchmark(
    "scaling",
    table=[
        Place("scaling#page", caption="A page"),
        Place("scaling#node", caption="A GPU"),
        Place("scaling#sets", caption="A set"),
    ],
    pages=(),
    uses=("shards", "epochs", "scale"),
)
def scaling(data: Data) -> Iterator[Row]:
    """Bytes and speed of a page on every way, and cores, network and storage of nodes."""
    read, sizes = rows_by_name(data.rows_of("shards")), rows_by_name(data.rows_of("scale"))
    epochs = rows_by_name(data.rows_of("epochs"))
    megabytes = {name: read[name].value("a page") / 1e6 for name in SHARDS}
    megabytes["cache"] = epochs["kept per page"].value("GlyphFeed") / 1e6
    # Two threads on two cores, halved.
    counts = [int(word) for word in next(iter(epochs.values())).caption.split() if word.isdigit()][:2]
    speed = {name: read[name].value("read") / 2 for name in ("folder", *SHARDS)}
    for name, row, pages in (
        (VALIDATION, "validation epoch, warm", 0),
        (TRAINING, "training epoch, augmented, warm", 1),
    ):
        speed[name] = counts[pages] / epochs[row].value("GlyphFeed") / 2
    raw, cache = megabytes["raw shards"], megabytes["cache"]

    def page(name: str, size: str, rate: float | None = None) -> Row:
        return Row(name, {"bytes per page": size, "pages/s per core": rate and Figure(rate)}, "A page")

    yield page("folder", f"{raw:.2f} MB read", speed["folder"])
    for name in SHARDS:
        yield page(name, f"{megabytes[name]:.2f} MB read", speed[name])
        yield page("- converted to them", f"{megabytes[name]:.2f} MB written", read[name].value("written") / 2)
    for name in (TRAINING, VALIDATION):
        yield page(name, f"{cache:.2f} MB kept", speed[name])
    for kind in ("folder", "shards"):
        yield page(f"the rows of {kind}", f"{sizes[kind].value('file, bytes/page'):.0f} bytes on disk")
    consumed = STEP_PAGES / STEP_SECONDS
    for name, rate, stored, fetched, when in (
        ("raw shards or folder, nothing cached", "folder", "raw shards", "raw shards", "every epoch"),
        ("training, cached on the node", TRAINING, "cache", "raw shards", "in the first epoch only"),
        ("validation, cached on the node", VALIDATION, "cache", "raw shards", "in the first epoch only"),
        ("validation, ready shards", "ready shards", "ready shards", "ready shards", "every epoch"),
    ):
        gigabits = (
            f"{consumed:.0f} x {megabytes[fetched]:.2f} MB = {consumed * megabytes[fetched] * 8 / 1e3:.1f} Gbit/s"
        )
        cells = {
            "cores per GPU": f"{consumed:.0f} / {speed[rate]:.0f} = {consumed / speed[rate]:.1f}",
            "network per GPU": f"{gigabits}, {when}",
            "storage per million pages": f"{megabytes[stored]:.2f} TB",
        }
        yield Row(name, cells, "A GPU")
    for millions, nodes in SETS:
        cells = {
            "raw bytes": f"{millions * raw:.3g} TB",
            "nodes": str(nodes),
            "an epoch": f"{millions * 1e6 / nodes / consumed / GPUS / 60:.0f} min",
            "pages per node and epoch": f"{millions / nodes:.3g} M",
            "cache of all pages": f"{millions * cache:,.2f} TB",
        }
        needed = GPUS * consumed / speed["folder"]
        yield Row(
            f"{millions:,} M pages",
            cells,
            f"A set; {needed:.1f} of {CORES} cores load uncached what {GPUS} GPUs consume",
        )
