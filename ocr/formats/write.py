"""From pages of words to a file or folder in a format that labelling tools and other detectors read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from ocr.atomic import replacing
from ocr.errors import AnnotationError, ConfigError, near_names
from ocr.formats.annotation import Annotations
from ocr.formats.export import LOCAL_FILES, Export
from ocr.formats.names import is_image
from ocr.formats.registry import FORMATS

WRITTEN = tuple(name for name, format in FORMATS.items() if format.write or format.write_page)
"""The formats that are written."""


WITH_NOTES = tuple(name for name in WRITTEN if "note" not in FORMATS[name].lacks)
"""The formats that can hold a reason."""


def write_annotations(
    annotations: Annotations,
    path: str | os.PathLike[str],
    format: str = "native",
    scores: Mapping[str, Sequence[float]] | None = None,
    model_version: str = "glyphfeed",
    image_path: str | os.PathLike[str] | None = None,
    image_prefix: str = LOCAL_FILES,
) -> tuple[str, ...]:
    """Write a file, or a folder for a format with one file per image; returns what the format could not hold.

    With `scores`, one per word of each page, the words are predictions: Label Studio shows them as such, with the
    `model_version`; other formats keep the scores as attributes. `image_path` is the folder of the images, if a format
    refers to them; `image_prefix` is what Label Studio finds them by.
    """
    check_written(format)
    target, notes = Path(path), list[str]()
    images = None if image_path is None else Path(image_path)
    export = Export(annotations.pages, target, scores, model_version, images, image_prefix, notes)
    known = FORMATS[format]
    if known.write is not None:
        with replacing(target) as stream:
            for part in known.write(export):
                stream.write(part.encode())
    else:
        assert known.write_page is not None
        more = None if known.write_more is None else known.write_more(export)
        for name, file in files_of(annotations.pages, target, format).items():
            content = known.write_page(name, annotations.pages[name], export)
            with replacing(file) as stream:
                stream.write(content.encode())
        if more is not None:
            with replacing(more[0]) as stream:
                stream.write(more[1].encode())
    return (*notes, *_losses(annotations, format))


def check_written(format: str) -> None:
    """Refuse a format that has no writer."""
    if format not in WRITTEN:
        raise ConfigError(
            f"format={format} (--to) is unknown. {near_names(format, list(WRITTEN))}", setting="--to", value=format
        )


def files_of(names: Iterable[str], folder: Path, format: str) -> dict[str, Path]:
    """The file of each page, for a format with one file per image."""
    found: dict[str, Path] = {}
    taken: dict[Path, str] = {}
    for name in names:
        relative = PurePosixPath(name.replace("\\", "/"))
        if relative.is_absolute() or ".." in relative.parts or not relative.name or ":" in relative.parts[0]:
            raise AnnotationError(
                f"{name!r} is not a file name inside {folder}. Name images relative to their folder",
                value=name,
                path=folder,
            )
        # What follows the suffix distinguishes the pages of a PDF: scan.pdf#page=2.
        stem = relative.stem if is_image(name) else relative.name
        file = folder / relative.with_name(stem + FORMATS[format].suffixes[0])
        if file in taken:
            raise AnnotationError(
                f"{taken[file]} and {name} would both be {file.name}. Rename one of the images",
                value=(taken[file], name),
                path=file,
            )
        found[name], taken[file] = file, name
    return found


def _losses(annotations: Annotations, format: str) -> list[str]:
    words = [word for page in annotations.pages.values() for word in page.words] if FORMATS[format].lacks else []
    counts = {field: sum(getattr(word, field) is not None for word in words) for field in FORMATS[format].lacks}
    return [f"{format} has no field for the {field} of {count} words" for field, count in counts.items() if count]


def check_tasks(format: str, out: Path | None) -> Path:
    """Refuse a format without a place for reasons, and one without a target."""
    check_written(format)
    if format not in WITH_NOTES:
        raise ConfigError(
            f"--tasks {format} has no field for a reason. Choose one of {', '.join(WITH_NOTES)}",
            setting="--tasks",
            value=format,
        )
    if out is None:
        raise ConfigError(
            f"--tasks {format} needs --out. Set the file to write, or the folder for labelme", setting="--out"
        )
    if out.exists():
        raise ConfigError(f"--out {out} exists. Set another name, or remove it", setting="--out", value=out, path=out)
    return out
