"""`ocr advise`. Every library that takes time to load is imported when the command runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from ocr.jobs.config_folders import ConfigDir

BUSY = 0.1
"""Share of the cores that others may have before it is told."""


def advise(
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="As of ocr train.")] = None,
    split: Annotated[str, typer.Option(help="Split whose epochs are predicted: train, val or test.")] = "train",
    step_ms: Annotated[
        float | None, typer.Option(help="Milliseconds of a training step; default: the model is measured here.")
    ] = None,
    pages: Annotated[int, typer.Option(help="Pages to measure on.")] = 64,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the best settings to ./configs/data/tuned.yaml, for data=tuned.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run whole epochs and compare them with the prediction.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here, for ocr report.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report here: one page that needs nothing else.")] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Measure the pipeline of a config on this machine, and say what would make it faster.

    Stages, consumer, disk and memory are measured on a few pages, in a folder that is removed afterwards; every remedy
    is tried on them, and its epoch predicted.
    """
    # Before torch is loaded: threads that wait for work by spinning take the cores from the loader's workers.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from ocr.advisor.measure.machine import look_at_machine
    from ocr.advisor.measure.other_processes import Others
    from ocr.advisor.measure.temporary_folder import temporary_folder
    from ocr.advisor.remedies.advisor import Advisor, Settings
    from ocr.advisor.report.advice_screen import cache_state, show, to_result, write_tuned
    from ocr.advisor.report.result_file import write_result
    from ocr.cache.folder import cache_root
    from ocr.jobs.compose import compose_training

    overrides = overrides or []
    config = compose_training(overrides, "ocr advise")
    root = cache_root(config.cache.folder)
    machine = look_at_machine(root)
    console = Console()
    compose: Any = lambda more: compose_training([*overrides, *more], "ocr advise")  # noqa: E731
    columns = (SpinnerColumn(), TextColumn("measuring {task.description}"), TimeElapsedColumn())
    others = Others()
    settings = Settings(split=split, pages=pages, step_ms=step_ms)
    with Progress(*columns, console=console, transient=True) as progress, temporary_folder(root) as folder:
        task = progress.add_task("the machine")
        tick = lambda what: progress.update(task, description=what)  # noqa: E731
        advisor = Advisor(compose, settings, machine.cores, machine.free_memory_bytes)
        advice = advisor.advise(folder, tick)
        if verify:
            advisor.verify(advice, folder, tick)
    show(advice, console)
    if (share := others.share() or 0.0) > BUSY:
        console.print(f"[yellow]other programs had {share:.0%} of the cores: measure again when they have ended[/]")
    options = [("--split", split), *([("--step-ms", f"{step_ms:g}")] if step_ms is not None else [])]
    words = [word for option in options for word in option]
    command = shlex.join(["ocr", "advise", *overrides, *words, *["--verify"] * verify])
    found = to_result(advice, command, machine.to_dict(), split, advisor.rates, cache_state(root))
    if json_file:
        write_result(found, json_file)
        console.print(f"figures: {json_file}", highlight=False)
    if html:
        from ocr.advisor.report.html_page import write_report

        write_report([found], html)
        console.print(f"report: {html}", highlight=False)
    if apply:
        _apply(
            advice, overrides, command, (config_dir or Path("configs")) / "data" / "tuned.yaml", console, write_tuned
        )


def _apply(advice: Any, overrides: list[str], command: str, path: Path, console: Any, write_tuned: Any) -> None:
    best = advice.best
    if best is None:
        console.print("nothing to apply: no setting would make it faster")
        return
    base = next((text.partition("=")[2] for text in overrides if text.startswith("data=")), "base")
    write_tuned(best.overrides, base, command, path)
    console.print(f"applied {best.name}: {path}, used by data=tuned", highlight=False)
