"""`ocr advise`. Libraries that are slow to load are imported when the command runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocr.jobs.config_folders import ConfigDir

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = ("ocr advise dataset_base_path=DIR", "ocr advise --step-ms 60 --apply --html advice.html")


def advise(
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="As for ocr train.")] = None,
    split: Annotated[str, typer.Option(help="Split whose epochs are predicted: train, val or test.")] = "train",
    step_ms: Annotated[
        float | None, typer.Option(help="Milliseconds per training step; default: the model is measured here.")
    ] = None,
    pages: Annotated[int, typer.Option(help="Number of pages to measure.")] = 64,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Leave out changes of the model with this word in their name, such as compiled; repeatable."),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Write the best settings that leave what the model learns alone to ./configs/data/tuned.yaml, for "
            "data=tuned; with experiment=NAME to ./configs/experiment/tuned.yaml.",
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Run epochs, at most 20 s of each, and compare them with the predictions."),
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here, for ocr report.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report here, as one HTML page.")] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Measure the pipeline and the model of a config on this machine, and say what would make training faster.

    Stages, model, disk and memory are measured on a few pages, in a folder that is removed afterwards. Every remedy is
    tried on these pages: caches, workers and shards for the loader; page size and shape, batch size, precision,
    compilation, layout, threads, encoders and others for the model, unless --step-ms is given. Epoch, whole run and
    memory are predicted, with what is known of the effect on the H-mean.
    """
    # Before torch is loaded: its threads would spin while they wait, on the cores of the loader's workers.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from ocr.advisor.measure.machine import describe_machine
    from ocr.advisor.measure.other_processes import CpuOfOthers, warning
    from ocr.advisor.measure.temporary_folder import temporary_folder
    from ocr.advisor.remedies.advisor import AdviseSettings, Advisor
    from ocr.advisor.remedies.tuned import base_group, write_tuned
    from ocr.advisor.report.advice_result import cache_state, to_result
    from ocr.advisor.report.advice_screen import print_advice
    from ocr.cache.folder import cache_root
    from ocr.jobs.compose import compose_training

    given, console = list(overrides or ()), Console()
    base = base_group(given) if apply else ("", "")
    root = cache_root(compose_training(given).cache.folder)
    machine, others = describe_machine(root), CpuOfOthers()
    settings = AdviseSettings(split=split, pages=pages, step_ms=step_ms, skip=tuple(skip or ()))
    columns = (SpinnerColumn(), TextColumn("measuring {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress, temporary_folder(root) as folder:
        task = progress.add_task("the machine")
        resources = (machine["cores"], machine["free_memory_bytes"])
        advisor = Advisor(lambda more: compose_training([*given, *more]), settings, *resources)

        def show(what: str) -> None:
            progress.update(task, description=escape(what))

        advice = advisor.advise(folder, show)
        if verify:
            advisor.verify(advice, folder, show)
    print_advice(advice, console)
    if busy := warning(others.share()):
        console.print(f"[yellow]{busy}[/]", highlight=False, soft_wrap=True)
    options = ["--split", split, *(["--step-ms", f"{step_ms:g}"] if step_ms is not None else [])]
    options += [text for word in settings.skip for text in ("--skip", word)]
    command = shlex.join(["ocr", "advise", *given, *options, *["--verify"] * verify])
    found = to_result(advice, command, machine, split, advisor.throughput, cache_state(root))
    _write(found, json_file, html, console)
    if apply and advice.best is not None:
        path = write_tuned(advice.best.overrides, base, command, config_dir or Path("configs"))
        _print(f"{advice.best.name} is written to {path.resolve()}: use it with {base[0]}=tuned", console)
    elif apply and advice.fastest_other is not None:
        change = " ".join(advice.fastest_other.overrides)
        _print(f"nothing to apply that leaves what the model learns alone. Your choice: {change}", console)
    elif apply:
        _print("nothing to apply: no setting would make training faster", console)


def _write(found: dict[str, Any], json_file: Path | None, html: Path | None, console: Console) -> None:
    from ocr.advisor.report.html_page import write_report
    from ocr.advisor.report.result_file import write_result

    if json_file:
        write_result(found, json_file)
    if html:
        write_report([found], html)
    for file in filter(None, (json_file, html)):
        _print(f"written: {file}", console)


def _print(line: str, console: Console) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
