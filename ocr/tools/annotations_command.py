"""`ocr convert-annotations`. Every library that takes time to load is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CATEGORIES_HELP = "Category of a COCO file that is text; may be repeated. Default: those named like text."


def convert_annotations(
    source: Annotated[Path, typer.Argument(help="Annotation file, or folder with one file per image.")],
    target: Annotated[Path, typer.Argument(help="Native JSON to write.")],
    annotation_format: Annotated[
        str, typer.Option("--format", help="auto, native, icdar2015, icdar2013, total_text, ctw1500, coco or paddle.")
    ] = "auto",
    categories: Annotated[list[str] | None, typer.Option(help=CATEGORIES_HELP)] = None,
    image_path: Annotated[Path | None, typer.Option(help="Folder of the images, to find their names.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
) -> None:
    """Write the native JSON from any known annotation format."""
    from ocr.formats.lines import list_faults
    from ocr.tools.convert_annotations import convert_annotations as convert

    done = convert(source, target, annotation_format, image_path, overwrite, categories or "auto")
    typer.echo(f"{done.format}: {done.pages} pages, {done.words} words ({done.ignored} ignored): {target}")
    if done.notes:
        typer.secho(list_faults(done.notes), fg="yellow", err=True)
    if done.missing:
        typer.secho(f"{done.missing} of the pages have no image in {image_path}", fg="yellow", err=True)
