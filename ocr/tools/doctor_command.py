"""`glyphfeed doctor`. Every library that takes time to load is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocr.tools.annotations_command import CATEGORIES_HELP
from ocr.tools.executor import EXECUTOR_HELP

EXAMPLES = (
    "glyphfeed doctor data/demo",
    "glyphfeed doctor DIR --html report.html --fix repaired",
    "glyphfeed doctor DIR --split train --model glyphfeed --html suspects.html",
    "glyphfeed doctor DIR --split train --model best.ckpt --tasks label_studio --out tasks.json",
)


def doctor(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Dataset: images/<split>/ and jsons/<split>.json.")],
    annotation_path: Annotated[
        Path | None, typer.Option(help="Annotation of a single split; DATA is then its folder of images.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable.")] = None,
    annotation_format: Annotated[str, typer.Option(help="Format of the annotation.")] = "auto",
    categories: Annotated[list[str] | None, typer.Option(help=CATEGORIES_HELP)] = None,
    annotation_frame: Annotated[str, typer.Option(help="Frame of polygons on EXIF pages: auto|upright|raw.")] = "auto",
    size: Annotated[int, typer.Option(help="Side of the letterboxed page, for tiny text.")] = 640,
    min_text_size: Annotated[float, typer.Option(help="Text with a shorter side is not learnt, in pixels.")] = 2.0,
    max_pixels: Annotated[
        int | None, typer.Option(help="Pages with more pixels are refused as decompression bombs.")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every page instead of reading headers.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the findings here (- for the screen).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that draws what is wrong.")] = None,
    fix: Annotated[
        Path | None, typer.Option(help="Write a repaired copy of the annotations below this folder.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Also list labels that this detector contradicts: a file, or glyphfeed, the bundled one. It must not "
            "have learnt these labels."
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Format to write the suspects in, for a labelling tool: label_studio, cvat, ...")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where --tasks writes: a file, or a folder for labelme.")] = None,
    executor: Annotated[str, typer.Option(help=EXECUTOR_HELP)] = "local",
    workers: Annotated[int | None, typer.Option(help="Threads, or CPUs of Ray; default: all.")] = None,
) -> None:
    """List what is wrong with a dataset; the exit status is 1 if something is.

    Errors break training or teach something wrong; warnings lose or distort single words or pages. Both make the exit
    status 1. Training handles notes (tiny text, ambiguous frames, pages without words, stray files). With --model,
    the labels that a detector contradicts are notes too, the most suspicious first; --fix proposes what they should be.
    """
    from rich.console import Console

    from ocr.atomic import refuse_missing_folder, replacing
    from ocr.tools.doctor import examine, print_fix, print_report, write_fixed, write_html
    from ocr.tools.doctor.labels import add_suspects, check_options, write_tasks

    to_screen = str(json_file) == "-"
    for written, setting in ((json_file, "--json"), (html, "--html")):
        if written is not None:
            refuse_missing_folder(written, setting)
    check_options(model, tasks, out)
    report = examine(
        data,
        splits=split or None,
        annotation_path=annotation_path,
        annotation_format=annotation_format,
        annotation_categories=categories or "auto",
        annotation_frame=annotation_frame,
        size=size,
        min_text_size=min_text_size,
        **({} if max_pixels is None else {"max_pixels": max_pixels}),
        deep=deep,
        workers=workers,
        show_progress=not to_screen,
        executor=executor,
    )
    console = Console(stderr=to_screen)
    if model is not None:
        report = add_suspects(report, model, Console(stderr=True))
    print_report(report, console)
    if to_screen:
        typer.echo(report.to_json())
    elif json_file:
        with replacing(json_file) as stream:
            stream.write(report.to_json().encode())
    if html:
        write_html(report, html)
        console.print(f"drawn: {html}", markup=False)
    if fix:
        print_fix(write_fixed(report, fix), console)
    if tasks is not None and out is not None:
        for file in write_tasks(report, tasks, out):
            console.print(f"tasks: {file}", markup=False)
    raise typer.Exit(report.exit_status)
