"""Convert and verify several splits, and report the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.tools.convert.convert import Converted, Problem, Verified, convert_split, verify_split
from ocr.tools.convert.plan import make_plan
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import index_path
from ocr.tools.executor import started
from ocr.tools.terminal import markup
from ocr.units import format_bytes

if TYPE_CHECKING:
    from ocr.datasets import OCRDataset

PLAIN: Any = {"highlight": False, "soft_wrap": True}
MAX_PROBLEMS_PER_FILE = 10
"""Problems of one file that are shown; swapped shards have one for each of their pages."""
INTERRUPTED = "interrupted: every shard written so far is complete; the same command continues with the rest"


def convert(datasets: Mapping[str, OCRDataset], out: str | Path, settings: ConvertSettings) -> int:
    """Write the shards of every split into a folder; the exit status, 1 if verification finds something wrong.

    With `verify`, a split that has an index is only read; an unfinished one is finished first.
    """
    folder, console = _local_folder(out), Console()
    there = {split for split in datasets if settings.verify and index_path(folder, split).exists()}
    plans = {split: make_plan(datasets[split], split, folder, settings) for split in datasets if split not in there}
    if settings.ready:
        warm_up()
    with started(settings.executor, settings.workers):
        converted = [convert_split(plan, settings) for plan in plans.values()]
        if converted:
            print_converted(converted, folder, console)
        if not settings.verify:
            return 0
        verified = [verify_split(dataset, split, folder, settings) for split, dataset in datasets.items()]
    print_verified(verified, console)
    return int(any(one.problems for one in verified))


def print_converted(converted: Sequence[Converted], out: Path, console: Console) -> None:
    """One row per split, and the pages that were left out."""
    table = _table("split", "kind", "pages", "shards", "size", "written", "kept", "left out", "time")
    for one in converted:
        counts = (len(one.index.samples), len(one.index.shards), format_bytes(one.bytes), one.written, one.kept)
        row = (markup(one.index.split), one.index.kind, *counts, len(one.skipped), f"{one.seconds:.1f} s")
        table.add_row(*map(str, row))
    console.print(table)
    console.print(f"shards in {markup(str(out))}", **PLAIN)
    for one in converted:
        if not one.written:
            console.print(f"{markup(one.index.split)}: nothing to do, every shard is up to date", **PLAIN)
        _print_left_out(one.skipped, console)


def print_verified(verified: Sequence[Verified], console: Console) -> None:
    """One row per split, and below it the problems: file, key, offset."""
    table = _table("verified", "shards", "pages", "size", "left out", "wrong")
    for one in verified:
        counts = (one.shards, one.pages, format_bytes(one.bytes), len(one.left_out), len(one.problems))
        table.add_row(markup(one.split), *map(str, counts))
    console.print(table)
    for one in verified:
        _print_left_out(one.left_out, console)
        _print_problems(one.problems, console)


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("split", "kind", "verified") else "right", no_wrap=True)
    return table


def _print_problems(problems: Sequence[Problem], console: Console) -> None:
    by_file: dict[str, list[Problem]] = {}
    for problem in problems:
        by_file.setdefault(problem.file, []).append(problem)
    for found in by_file.values():
        for file, key, offset, what in found[:MAX_PROBLEMS_PER_FILE]:
            place = file + (f" {key}" if key else "") + (f" at offset {offset}" if offset is not None else "")
            console.print(f"[red]{markup(place)}[/]: {markup(what)}", **PLAIN)
        if len(found) > MAX_PROBLEMS_PER_FILE:
            console.print(f"[red]{markup(found[0].file)}[/]: and {len(found) - MAX_PROBLEMS_PER_FILE} more", **PLAIN)
    if problems:
        console.print("The same command without --verify rewrites the wrong shards", **PLAIN)


def _print_left_out(skipped: Mapping[str, str], console: Console) -> None:
    for name, reason in skipped.items():
        console.print(f"[yellow]left out {markup(name)}[/]: {markup(reason)}", **PLAIN)


def _local_folder(out: str | Path) -> Path:
    if "://" in str(out):
        raise ConfigError(
            f"{out} is not a local folder. Convert into one, then upload it: aws s3 sync FOLDER {out}",
            setting="out",
            value=out,
            path=str(out),
        )
    folder = Path(out).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Name a folder for the shards", setting="out", value=out, path=folder)
    return folder.absolute()
