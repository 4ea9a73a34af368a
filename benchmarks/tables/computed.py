"""Tables that are computed from others: what nodes need by what a page takes."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Data, Figure, Place, Row, benchmark, rows_by_name

STEP_SECONDS, STEP_PAGES = 0.06, 16
"""A step of the GPU that the arithmetic is about."""
GPUS, CORES = 8, 16
"""Of a node."""
SHARDS = ("raw shards", "ready shards")
TRAINING, VALIDATION = "training, cache warm", "validation, cache warm"


@benchmark(
    "scaling",
    table=[
        Place("scale#page", caption="A page"),
        Place("scale#node", caption="A GPU"),
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
