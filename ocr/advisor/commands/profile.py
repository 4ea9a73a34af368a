"""`ocr profile`. Every library that takes time to load is imported when the command runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ocr.jobs.config_folders import ConfigDir

EXAMPLES = ("ocr profile dataset_base_path=DIR", "ocr profile --split val --sizes 640,1024 --model model=lite")


def profile(
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="As of ocr train.")] = None,
    split: Annotated[str, typer.Option(help="Whose pages go through whose transforms.")] = "train",
    pages: Annotated[int, typer.Option(min=1, help="Pages from all over the split.")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Epochs of each page: random stages draw anew in each.")] = 6,
    sizes: Annotated[str, typer.Option(metavar="N,N", help="Sides of the page to compare; '' for none.")] = (
        "320,640,1280"
    ),
    model: Annotated[bool, typer.Option("--model", help="Forward, backward, boxes and scores too.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write it here, for `ocr report`.")] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Tell what every stage of the data path takes by itself, fed with what the one before gave.

    Times are milliseconds a page, in one thread, with files and kernels warm. Random stages count as they come: the
    mean is over all draws, those that leave a page alone included. Flips, turns, scales and crops are one warp, which
    samples pixels once, and so one row.
    """
    given, sides = list(overrides or ()), parse_sizes(sizes)
    # Before torch is loaded: its threads would wait for work by spinning, on the cores that are measured.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from rich.console import Console
    from rich.progress import Progress

    from ocr.advisor.measure.machine import look_at_machine
    from ocr.advisor.measure.profile import Settings
    from ocr.advisor.measure.profile import profile as measure
    from ocr.advisor.report.profile_screen import print_profile
    from ocr.advisor.report.result_file import result, write_result
    from ocr.cache.folder import cache_root
    from ocr.jobs.compose import compose_training

    console, settings = Console(), Settings(split, pages, repeats, sides, model)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=settings.rounds)
        found = measure(
            lambda more: compose_training([*given, *more], "ocr profile"),
            settings,
            lambda what: bar.update(task, advance=1, description=what),
        )
    print_profile(found, split, console)
    if json_file is not None:
        options = ["--split", split, "--pages", str(pages), "--repeats", str(repeats), "--sizes", sizes]
        command = shlex.join(["ocr", "profile", *given, *options, *["--model"] * model])
        machine = look_at_machine(cache_root(None)).to_dict()
        data = {"place": found.place, "split": split, "pages": found.pages}
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
        raise ConfigError(f"--sizes {text!r} are no sides in pixels. Give such as 320,640,1280")
    return tuple(dict.fromkeys(map(int, parts)))
