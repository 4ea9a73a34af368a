"""Offline maps: draw the maps of every page once and store them next to the images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from ocr.atomic import remove_partial_files
from ocr.errors import DataError, MapError
from ocr.formats.maps import map_file, maps_folder, read_fingerprint, write_maps
from ocr.geometry.kernels.warm_up import warm_up
from ocr.pipeline.image_listing import hash_of
from ocr.pipeline.prefix import FixedPart
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import FolderSource
from ocr.pipeline.targets import ON_DISK, Targets, maps_fingerprint
from ocr.tools.executor import LazyTasks, check_executor, run_tasks
from ocr.tools.terminal import markup, progress_bar

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.datasets.base import OCRDataset

CHUNK = 16
"""Pages per chunk of a Ray worker; a page takes about 5 ms."""


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


@dataclass(frozen=True, slots=True)
class PageMaps:
    """Writes the maps of one page, unless the stored ones are still valid."""

    fixed_part: FixedPart
    targets: Targets
    folder: Path
    compress: bool
    on_bad_sample: str

    @classmethod
    def of(cls, dataset: OCRDataset, folder: Path, compress: bool) -> PageMaps:
        """The parts of a dataset that are needed, without its pages."""
        path = dataset.path
        return cls(path.fixed_part, path.drawn, folder, compress, path.on_bad_sample)

    def __call__(self, page: FolderSource) -> tuple[str, str]:
        """The outcome for the single page of a source, "written", "valid" or "failed", and why it failed."""
        try:
            return self._write(self.fixed_part.measure(page.read(0))), ""
        except DataError as error:
            if self.on_bad_sample == "raise":
                raise
            return "failed", str(error)

    def _write(self, page: Sample) -> str:
        fingerprint = maps_fingerprint(page, self.targets)
        target = map_file(self.folder, page.filename)
        try:
            if read_fingerprint(target) == fingerprint:
                return "valid"
        except (FileNotFoundError, MapError):
            pass  # Missing or damaged: written now.
        maps = self.targets(page).maps
        assert maps is not None
        write_maps(target, {name: maps[name].astype(ON_DISK[name]) for name in maps}, fingerprint, self.compress)
        return "written"


def preprocess_maps(
    dataset: OCRDataset,
    split: str = "",
    workers: int | None = None,
    show_progress: bool = True,
    compress: bool = False,
    executor: str = "local",
) -> MapsSummary:
    """Write `<images>_maps/<stem>.npz` for every page of a dataset whose stored maps are missing or stale.

    If interrupted at any moment, every file is complete, and the next run continues with the rest.
    """
    check_executor(executor, workers)
    source, folder = dataset.folder_source, maps_folder(dataset.folder_source.folder)
    _refuse_shared_files(source.names, folder)
    remove_partial_files(folder)
    warm_up(show_progress)
    write = PageMaps.of(dataset, folder, compress)
    pages = LazyTasks(len(source), lambda index: source.select([index]))
    counts: Counter[str] = Counter()
    failed = {}
    with (
        progress_bar(show_progress) as progress,
        closing(run_tasks(write, pages, executor, workers, chunk=CHUNK)) as results,
    ):
        bar = progress.add_task(markup(f"maps of {split or source.folder.name}"), total=len(pages))
        for number, (outcome, reason) in results:
            counts[outcome] += 1
            if outcome == "failed":
                failed[number] = reason
            progress.advance(bar)
    remove_partial_files(folder)  # Left by Ray workers that died.
    reasons = source.skipped | {source.names[number]: failed[number] for number in sorted(failed)}
    used = not dataset.transform.moves_geometry
    return MapsSummary(split, folder, counts["written"], counts["valid"], reasons, used)


def print_summaries(summaries: Sequence[MapsSummary], console: Console) -> None:
    """One row per split."""
    table = Table(title="Stored maps", title_justify="left")
    for heading, justify in (("split", "left"), ("written", "right"), ("still valid", "right"), ("failed", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("folder", overflow="fold")
    for summary in summaries:
        counts = (summary.written, summary.valid, len(summary.failed))
        table.add_row(markup(summary.split), *map(str, counts), markup(str(summary.folder)))
    console.print(table)
    for summary in summaries:
        if not summary.used:
            split = markup(summary.split)
            console.print(f"[yellow]{split}: its transforms move polygons, so its maps are drawn again for every page")
        for name, reason in summary.failed.items():
            console.print(f"[red]{markup(name)}[/]: {markup(reason)}", highlight=False, soft_wrap=True)


def _refuse_shared_files(names: Sequence[str], folder: Path) -> None:
    hashes = np.fromiter((hash_of(str(map_file(folder, name))) for name in names), np.uint64, len(names))
    ordered = np.sort(hashes)
    owners: dict[Path, str] = {}
    for index in np.flatnonzero(np.isin(hashes, ordered[1:][ordered[1:] == ordered[:-1]])).tolist():
        name = names[index]
        first = owners.setdefault(map_file(folder, name), name)
        if first != name:
            raise DataError(
                f"{first} and {name} would share {map_file(folder, name)}. Rename one of the images",
                value=(first, name),
                path=map_file(folder, name),
            )
