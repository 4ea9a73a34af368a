"""Overviews: a figure of each of several benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.harness import Data, Result, Row, benchmark
from ocr.errors import DataError


class Shown(NamedTuple):
    """A row of an overview: one cell of a benchmark."""

    name: str
    benchmark: str
    row: str
    column: str
    caption: str = ""
    """The beginning of the table's."""
    against: str = ""


IN_SHORT = (
    Shown("H-mean of the bundled detector, lines of receipts", "scored", "lines of receipts, IoU 0.5", "H-mean"),
    Shown("H-mean of the bundled detector, words of forms", "scored", "words of forms, IoU 0.5", "H-mean"),
    Shown("a page without a cache, one thread", "cold", "GlyphFeed", "a page"),
    Shown("- with Pillow, Albumentations and NumPy", "cold", "reference", "a page"),
    Shown("maps of a page", "maps", "ocr.pipeline.targets", "times classic NumPy", against="classic NumPy"),
    Shown("kept per page", "numbers", "kept per page", "this checkout"),
    Shown(
        "pages in their own shape, training", "shapes", "defaults: pages in their own shape", "training", "", "squares"
    ),
)
PATH = (
    Shown("a cold epoch, one thread", "cold", "GlyphFeed", "times the reference", against="reference"),
    Shown("maps of a page", "maps", "ocr.pipeline.targets", "times classic NumPy", against="classic NumPy"),
    Shown("boxes, polygons", "boxes", "BoxesFromMap", "a page", "Polygons", "usual loop"),
    Shown("boxes, rectangles", "boxes", "BoxesFromMap", "a page", "Rectangles", "usual loop"),
    Shown("CLEval, detection", "scores", "CLEvalMetric, detection alone", "times cleval", "CLEval", "cleval"),
    Shown("CLEval, end to end", "scores", "CLEvalMetric", "times cleval", "CLEval", "cleval"),
    Shown("IoU H-mean", "scores", "HmeanIoU", "times shapely loop", "IoU H-mean", "shapely loop"),
    Shown("synthetic receipts, one core, pages/s", "synth", "receipt", "pages/s"),
)


def used(shown: tuple[Shown, ...]) -> tuple[str, ...]:
    """The benchmarks of an overview."""
    return tuple(dict.fromkeys(one.benchmark for one in shown))


@benchmark("in-short", table="README#in-short", pages=(), uses=used(IN_SHORT))
def in_short(data: Data) -> Iterator[Row]:
    """The bundled detector's scores and what a page takes."""
    return overview(data, IN_SHORT)


@benchmark("path", table="results#path", pages=(), uses=used(PATH))
def path(data: Data) -> Iterator[Row]:
    """Each part of a page's path against what is usual."""
    return overview(data, PATH)


def overview(data: Data, shown: tuple[Shown, ...]) -> Iterator[Row]:
    """A row per figure, with the command that measures it."""
    for one in shown:
        result = Result.read(data.kept / f"{one.benchmark}.json")
        rows = [row for row in result.rows if row.name == one.row and row.caption.startswith(one.caption)]
        if len(rows) != 1 or one.column not in rows[0].cells:
            raise DataError(f"{one.benchmark} has no single row {one.row!r} with {one.column!r}", value=one.row)
        cells = {"command": f"`{result.command}`", "against": one.against, "figure": rows[0].cells[one.column]}
        yield Row(one.name, cells)
