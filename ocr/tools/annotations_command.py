"""`glyphfeed annotations`. Every library that takes time to load is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CATEGORIES_HELP = "Category of the annotation that is text; repeatable. Default: categories named like text."
FORMAT_HELP = "Format of the source: auto, or one of docs/data.md, such as icdar2015, coco, yolo, alto."
TO_HELP = "Format to write: native, coco, yolo, alto, label_studio, cvat, labelme, via, mmocr, paddle or pascal_voc."


def convert_labels(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Annotation file, or folder with one file per image.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="File, or folder for yolo, alto, labelme, pascal_voc.")],
    annotation_format: Annotated[str, typer.Option(help=FORMAT_HELP)] = "auto",
    to: Annotated[str, typer.Option("--to", help=TO_HELP)] = "native",
    categories: Annotated[list[str] | None, typer.Option(help=CATEGORIES_HELP)] = None,
    image_path: Annotated[
        Path | None, typer.Option(help="Folder of the images, to find their names and sizes.")
    ] = None,
    annotation_frame: Annotated[
        str, typer.Option(help="Frame of the source's polygons on EXIF pages: auto|upright|raw.")
    ] = "auto",
    image_prefix: Annotated[
        str, typer.Option(help="URL or local-files prefix of the images in Label Studio.")
    ] = "/data/local-files/?d=",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
) -> None:
    """Convert annotations of any known format, to the native JSON or for a labelling tool."""
    from ocr.formats.lines import list_faults
    from ocr.tools.convert_annotations import convert_annotations as convert

    done = convert(
        source,
        target,
        annotation_format,
        image_path,
        overwrite,
        categories or "auto",
        to,
        annotation_frame,
        image_prefix,
    )
    typer.echo(f"{done.format}: {done.pages} pages, {done.words} words ({done.ignored} ignored): {target}")
    if done.turned:
        typer.echo(f"{done.turned} EXIF pages were turned upright")
    if done.notes:
        typer.secho(list_faults(done.notes), fg="yellow", err=True)
    if done.missing:
        typer.secho(f"{done.missing} of the pages have no image in {image_path}", fg="yellow", err=True)
