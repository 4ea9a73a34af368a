"""Offline maps: draw the maps of every page once and lay them beside the images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ocr.atomic import remove_partial_files
from ocr.datasets.ocr_dataset import OCRDataset
from ocr.errors import ConfigError, DataError, MapError
from ocr.formats.maps import map_file, maps_folder, read_fingerprint, write_maps
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import maps_fingerprint


@dataclass(frozen=True, slots=True)
class MapsSummary:
    """What became of the maps of one split."""

    split: str
    folder: Path
    written: int
    valid: int
    """Already there, and drawn from what the page still is."""
    failed: dict[str, str] = field(default_factory=dict)
    """File name and reason of the pages that could not be read (on_bad_sample=skip)."""
    used: bool = True
    """Whether training with these transforms will read them."""


def preprocess_maps(
    dataset: OCRDataset,
    split: str = "",
    workers: int | None = None,
    show_progress: bool = True,
    compress: bool = False,
) -> MapsSummary:
    """Write `<images>_maps/<stem>.npz` for every page of a dataset whose stored maps do not fit.

    Interrupted at any moment, every file is whole, and the next run goes on with the rest.
    """
    folder = maps_folder(dataset.source.folder)
    names = dataset.source.names
    _refuse_shared_files(names, folder)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers} must be at least 1; null takes one a core")
    remove_partial_files(folder)
    counts: Counter[str] = Counter()
    failed = dict(dataset.source.skipped)

    def work(index: int) -> str:
        try:
            return _write_page(dataset, index, folder, compress)
        except DataError as error:
            if dataset.on_bad_sample == "raise":
                raise
            failed[names[index]] = str(error)
            return "failed"

    # Threads: drawing and compressing release the interpreter.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, disable=not show_progress) as progress,
        ThreadPoolExecutor(workers or os.cpu_count()) as threads,
    ):
        task = progress.add_task(f"maps of {split or dataset.source.folder.name}", total=len(names))
        pending = [threads.submit(work, index) for index in range(len(names))]
        try:
            for future in pending:
                counts[future.result()] += 1
                progress.advance(task)
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise
    return MapsSummary(split, folder, counts["written"], counts["valid"], failed, not dataset.transform.moves_geometry)


def print_summaries(summaries: Sequence[MapsSummary], console: Console) -> None:
    """One row a split."""
    table = Table(title="Stored maps", title_justify="left")
    for heading, justify in (("split", "left"), ("written", "right"), ("still valid", "right"), ("failed", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("folder", overflow="fold")
    for summary in summaries:
        counts = (summary.written, summary.valid, len(summary.failed))
        table.add_row(escape(summary.split), *map(str, counts), escape(str(summary.folder)))
    console.print(table)
    for summary in summaries:
        if not summary.used:
            split = escape(summary.split)
            console.print(f"[yellow]{split}: its transforms move polygons, so its maps are drawn anew for every page")
        for name, reason in summary.failed.items():
            console.print(f"[red]{escape(name)}[/]: {escape(reason)}", highlight=False, soft_wrap=True)


def _write_page(dataset: OCRDataset, index: int, folder: Path, compress: bool) -> str:
    page = _geometry(dataset, index)
    fingerprint = maps_fingerprint(page, dataset.targets)
    target = map_file(folder, page.filename)
    try:
        if read_fingerprint(target) == fingerprint:
            return "valid"
    except (FileNotFoundError, MapError):
        pass  # Not there, or not whole: written now.
    maps = dataset.targets(page).maps
    assert maps is not None
    write_maps(target, maps, fingerprint, compress)
    return "written"


def _geometry(dataset: OCRDataset, index: int) -> Sample:
    """The page at the cut. Where the letterbox comes first, its pixels are not needed and not decoded."""
    if dataset.transform.needed_side is None:
        return dataset.page(index)
    page = dataset.decode.measure(dataset.source.read(index))
    for stage in dataset.transform.fixed:
        page = stage(page)
    return page


def _refuse_shared_files(names: Sequence[str], folder: Path) -> None:
    owners: dict[Path, str] = {}
    for name in names:
        first = owners.setdefault(map_file(folder, name), name)
        if first != name:
            raise DataError(f"{first} and {name} would share {map_file(folder, name)}. Rename one of the images")
