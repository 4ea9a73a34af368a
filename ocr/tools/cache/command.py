"""The commands below `ocr cache`. Every library that takes time to load is imported in the command that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocr.jobs.config_folders import ConfigDir
from ocr.tools.executor import EXECUTOR_HELP

app = typer.Typer(
    help="Caches of pages between runs: list, count, check, remove and fill them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Caches as `ocr cache ls` names them; default: all.")
]
_Folder = Annotated[
    Path | None, typer.Option(help="Folder of the caches; default: $GLYPHFEED_CACHE, or the user's cache folder.")
]


@app.command(epilog="Examples: ocr cache ls   |   ocr cache ls --folder /fast/disk")
def ls(folder: _Folder = None) -> None:
    """List the caches: of which dataset, how large, how complete, how old."""
    from ocr.tools.cache.report import print_list

    print_list(folder)


@app.command(epilog="Examples: ocr cache stats   |   ocr cache stats 3f2a-91c4 --json")
def stats(
    names: _Names = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
    folder: _Folder = None,
) -> None:
    """Show hits, misses and invalid pages of all runs, and the stages that made the pages."""
    from ocr.tools.cache.report import print_stats

    print_stats(folder, names or (), as_json)


@app.command(epilog="Examples: ocr cache verify   |   ocr cache verify 3f2a-91c4 --repair")
def verify(
    names: _Names = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove damaged samples: they are rebuilt when needed.")
    ] = False,
    folder: _Folder = None,
) -> None:
    """Check every row and checksum; exit status 1 if something is wrong and not repaired."""
    from ocr.tools.cache.verify import verify

    raise typer.Exit(verify(folder, names or (), repair))


@app.command(epilog="Examples: ocr cache clear --max-bytes 20GB   |   ocr cache clear 3f2a-91c4 --yes")
def clear(
    names: _Names = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Remove the least recently used until the rest fits, such as 20GB.")
    ] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Remove those that were not used for this many days.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    folder: _Folder = None,
) -> None:
    """Remove caches: all, those named, or as many as the limits require.

    A running process keeps what it has mapped; that disk space is free when the process ends.
    """
    from ocr.tools.cache.clear import clear

    raise typer.Exit(clear(folder, names or (), max_bytes, older_than, dry_run, yes))


@app.command(epilog="Examples: ocr cache build dataset_base_path=DIR   |   ocr cache build --split val")
def build(
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="As of ocr train.")] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this split; may be repeated.")] = None,
    executor: Annotated[str, typer.Option(help=EXECUTOR_HELP)] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Threads, or CPUs of Ray; default: all.")] = None,
    folder: _Folder = None,
    config_dir: ConfigDir = None,
) -> None:
    """Fill the caches that `ocr train` will use with the same KEY=VALUE.

    After an interruption the same command continues with the rest; two running at once share the work. A Ray worker
    on another machine fills its own cache, unless all of them share the folder.
    """
    from ocr.tools.cache.build import build

    raise typer.Exit(build(overrides or (), split or ("train", "val"), workers, folder, executor))
