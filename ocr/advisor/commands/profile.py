"""`ocr profile`. Libraries that are slow to load are imported when the command runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ocr.jobs.config_folders import ConfigDir

EXAMPLES = ("ocr profile dataset_base_path=DIR", "ocr profile --split val --sizes 640,1024 --model model=lite")


def profile(
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="As for ocr train.")] = None,
    split: Annotated[str, typer.Option(help="Split whose pages and transforms are measured.")] = "train",
    pages: Annotated[int, typer.Option(min=1, help="Number of pages, from all over the split.")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Epochs per page; random stages draw other numbers in each.")] = 6,
    sizes: Annotated[str, typer.Option(metavar="N,N", help="Page sizes in pixels to compare; '' for none.")] = (
        "320,640,1280"
    ),
    model: Annotated[bool, typer.Option("--model", help="Measure forward, backward, boxes and scores too.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here, for `ocr report`.")] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Measure every stage of the data path by itself, with the real output of the stage before.

    Times are milliseconds per page in one thread, with files in memory and kernels compiled. The mean of a random stage
    is over all draws, including those that leave the page unchanged. Flips, rotations, scales and crops are one warp,
    which samples pixels once, and therefore one row.
    """
    given, sides = list(overrides or ()), parse_sizes(sizes)
    # Before torch is loaded: its threads would spin while they wait, on the cores that are measured.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    from ocr.advisor.measure.machine import describe_machine
    from ocr.advisor.measure.profile import ProfileSettings
    from ocr.advisor.measure.profile import profile as measure
    from ocr.advisor.report.profile_screen import print_profile
    from ocr.advisor.report.result_file import result, write_result
    from ocr.cache.folder import cache_root
    from ocr.jobs.compose import compose_training

    console, settings = Console(), ProfileSettings(split, pages, repeats, sides, model)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=settings.rounds)
        found = measure(
            lambda more: compose_training([*given, *more]),
            settings,
            lambda what: bar.update(task, advance=1, description=escape(what)),
        )
    print_profile(found, split, console)
    if json_file is not None:
        options = ["--split", split, "--pages", str(pages), "--repeats", str(repeats), "--sizes", sizes]
        command = shlex.join(["ocr", "profile", *given, *options, *["--model"] * model])
        machine = describe_machine(cache_root(None))
        data = {"place": found.location, "split": split, "pages": found.pages}
        write_result(result("profile", command, machine, data, **found.to_figures()), json_file)
        console.print(f"written: {json_file}", highlight=False, markup=False, soft_wrap=True)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sides of `--sizes`.

    >>> parse_sizes("320, 640"), parse_sizes("")
    ((320, 640), ())
    """
    from ocr.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) >= 16 for part in parts):
        raise ConfigError(
            f"--sizes {text!r} must be a list of integers >= 16, such as 320,640,1280", setting="--sizes", value=text
        )
    return tuple(dict.fromkeys(map(int, parts)))
