"""`ocr bench`. Libraries that are slow to load are imported when the command runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocr.jobs.config_folders import ConfigDir

if TYPE_CHECKING:
    from rich.console import Console

    from ocr.advisor.measure.bench import BenchResult

EXAMPLES = ("ocr bench dataset_base_path=DIR", "ocr bench --split train --only 'no cache,prefix cache' --rounds 5")


def bench(
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="As for ocr train.")] = None,
    split: Annotated[str, typer.Option(help="val, or train with its random transforms.")] = "val",
    only: Annotated[str, typer.Option(metavar="NAME,NAME", help="Only these configurations; see --list.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each configuration.")] = 3,
    pages: Annotated[int, typer.Option(min=0, help="At most this many, from all over the split; 0: all.")] = 256,
    workers: Annotated[
        str, typer.Option(metavar="N,N", help="Numbers of workers to compare; default: 0, 1, 2, 4, ... cores.")
    ] = "",
    model: Annotated[
        bool, typer.Option("--model", help="Compare precisions too, in a validation with the model.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for temporary caches and shards; default: the folder of the caches.")
    ] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write the figures here as CSV.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write them here, for `ocr report`.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the names of the configurations.")] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Measure epochs of the data path in several configurations, which take turns.

    Batches arrive on the model's device, normalised. `first` is the first epoch, including opening the split; `later`
    is the median of the others. Nothing is written beside the pages: caches, maps and shards are made in a folder that
    is removed at the end. A configuration that cannot run is listed with the reason; the exit status is 1 if none ran.
    """
    # Before torch is loaded: its threads would spin while they wait, on the cores that are measured.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from rich.console import Console

    from ocr.advisor.catalogue import bench_configurations, choose

    console = Console()
    listed = bench_configurations(parse_workers(workers), model or show_list)
    if show_list:
        from ocr.advisor.report.bench_screen import print_configurations

        print_configurations(listed, split, console)
        return
    chosen = choose(listed, [name.strip() for name in only.split(",") if name.strip()])
    from ocr.advisor.measure.bench import BenchSettings
    from ocr.advisor.measure.bench import bench as measure
    from ocr.advisor.report.bench_screen import print_result, write_csv

    given = list(overrides or ())
    settings = BenchSettings(split, rounds, pages, None if folder is None else str(folder))
    with _bar(console, 2 + rounds * len(chosen)) as tick:
        found = measure(given, chosen, settings, tick)
    print_result(found, split, rounds, console)
    if csv_file is not None:
        write_csv(found, csv_file)
    if json_file is not None:
        options = ["--split", split, "--only", only, "--rounds", str(rounds), "--pages", str(pages)]
        _write_json(found, shlex.join(["ocr", "bench", *given, *options, *["--model"] * model]), split, json_file)
    for file in filter(None, (csv_file, json_file)):
        console.print(f"written: {file}", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(int(all(one.skipped is not None for one in found.measurements)))


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar that advances with every call; an empty text hides it, because filling a cache draws its own."""
    from rich.markup import escape
    from rich.progress import Progress

    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=total)

    def tick(what: str) -> None:
        if what:
            bar.start()
            bar.update(task, advance=1, description=escape(what))
        else:
            bar.stop()

    try:
        yield tick
    finally:
        bar.stop()


def _write_json(found: BenchResult, command: str, split: str, path: Path) -> None:
    from ocr.advisor.measure.machine import describe_machine
    from ocr.advisor.report.result_file import result, write_result
    from ocr.cache.folder import cache_root

    machine = describe_machine(cache_root(None))
    data = {"place": found.location, "split": split, "pages": found.pages}
    figures: dict[str, Any] = {
        "configurations": [one.to_dict() for one in found.measurements],
        "baseline": found.baseline,
    }
    figures["others_share"] = found.others_share
    write_result(result("bench", command, machine, data, **figures), path)


def parse_workers(text: str) -> list[int] | None:
    """Numbers of `--workers`.

    >>> parse_workers("0, 2"), parse_workers("")
    ([0, 2], None)
    """
    from ocr.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(
            f"--workers {text!r} must be a list of integers >= 0, such as 0,2,4", setting="--workers", value=text
        )
    return list(dict.fromkeys(map(int, parts))) or None
