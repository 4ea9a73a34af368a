"""`glyphfeed shards`. Every library that takes time to load is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocr.tools.annotations_command import CATEGORIES_HELP
from ocr.tools.executor import EXECUTOR_HELP


def shards(
    source: Annotated[Path, typer.Argument(metavar="DATA", help="Dataset: images/<split>/ and jsons/<split>.json.")],
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT",
            help="Folder for <split>-000000.tar ... and <split>-index.json; default: DATA/shards, where "
            "data=webdataset looks.",
        ),
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable.")] = None,
    samples_per_shard: Annotated[int | None, typer.Option(metavar="N", help="Pages per shard; default: 1000.")] = None,
    bytes_per_shard: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes per shard; default: 256MB.")
    ] = None,
    shuffle_seed: Annotated[int | None, typer.Option(help="Shuffle the pages once; same seed, same order.")] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Letterboxed pages in 0.2 MB each, without loss: nothing is decoded.")
    ] = False,
    size: Annotated[int, typer.Option(help="Longest side of the letterboxed page, for --ready.")] = 640,
    shape: Annotated[str, typer.Option(metavar="page|square", help="Its shape.")] = "page",
    annotation_format: Annotated[str, typer.Option(help="Format of the annotation.")] = "auto",
    categories: Annotated[list[str] | None, typer.Option(help=CATEGORIES_HELP)] = None,
    on_bad_sample: Annotated[str, typer.Option(help="raise: stop and name the file; skip: leave it out.")] = "raise",
    workers: Annotated[int | None, typer.Option(help="Shards written at the same time; default: one per core.")] = None,
    executor: Annotated[str, typer.Option(help=EXECUTOR_HELP)] = "local",
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read all shards back and compare them with index and source; finished splits are not changed.",
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove shards of an earlier conversion that had more of them.")
    ] = False,
) -> None:
    """Write a dataset as tar shards that WebDataset and any tar can read.

    The same pages give the same bytes. After an interruption the same command continues; shards that are still valid
    are left alone. With --verify the exit status is 1 if something is wrong.
    """
    from ocr.datasets import DBTransforms, OCRDataset
    from ocr.pipeline.device import Normalize
    from ocr.pipeline.prefix import Letterbox
    from ocr.tools.convert.report import INTERRUPTED, convert
    from ocr.tools.convert.settings import ConvertSettings
    from ocr.tools.doctor.pages import find_splits

    settings = ConvertSettings(
        ready=ready,
        samples_per_shard=samples_per_shard,
        bytes_per_shard=bytes_per_shard,
        shuffle_seed=shuffle_seed,
        overwrite=overwrite,
        verify=verify,
        executor=executor,
        workers=workers,
    )
    transform = DBTransforms([Letterbox(size, shape=shape), Normalize()], normalize="device")
    datasets = {
        name: OCRDataset(
            images,
            annotation,
            transform,
            annotation_format=annotation_format,
            annotation_categories=categories or "auto",
            on_bad_sample=on_bad_sample,
        )
        for name, images, annotation in find_splits(source, split)
    }
    try:
        raise typer.Exit(convert(datasets, out or source / "shards", settings))
    except KeyboardInterrupt:
        typer.secho(INTERRUPTED, fg="yellow", err=True)
        raise typer.Exit(130) from None
