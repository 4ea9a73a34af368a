"""Write annotations of any format that is read as the native JSON, or for a labelling tool or another detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from ocr.errors import AnnotationError, ConfigError
from ocr.formats.annotation import Annotations
from ocr.formats.export import LOCAL_FILES
from ocr.formats.read import read_annotations
from ocr.formats.registry import FORMATS
from ocr.formats.write import check_written, files_of, write_annotations
from ocr.tools.upright_pages import to_upright


@dataclass(frozen=True, slots=True)
class ConversionSummary:
    """What was converted: the format it was in, how many pages and words, how many of the words are ignored.

    `missing` counts the pages whose image is not in the image folder; without a folder none is looked for. `turned`
    counts those whose words were moved from the stored frame to the upright one. `notes` say what was skipped,
    assumed or lost.
    """

    format: str
    pages: int
    words: int
    ignored: int
    missing: int = 0
    turned: int = 0
    notes: tuple[str, ...] = ()


def convert_annotations(
    source: Path,
    target: Path,
    format: str = "auto",
    image_path: Path | None = None,
    overwrite: bool = False,
    categories: str | Sequence[str] = "auto",
    to: str = "native",
    annotation_frame: str = "auto",
    image_prefix: str = LOCAL_FILES,
) -> ConversionSummary:
    """Read `source`, a file or a folder, and write `target`: a file, or a folder if `to` has one file per image.

    Annotations can name images by path. With `image_path`, the longest tail of the path that exists there is used;
    without it, the relative path as written. Formats other than the native one are written in the frame of the
    upright page, as tools draw in it; which frame the source is in, EXIF pages show by `annotation_frame`.
    """
    check_written(to)
    if not source.exists():
        raise AnnotationError(f"{source}: no such file or folder. Name the annotations to convert", path=source)
    _check_target(source, target, to, overwrite)
    annotations = read_annotations(source, format, image_path, categories)
    if FORMATS[to].write_page is not None and not overwrite:
        _refuse_existing(annotations, target, to)
    turned = 0
    if to != "native" and image_path is not None:
        names = track(list(annotations.pages), "sizes of pages", console=Console(stderr=True), transient=True)
        annotations, turned = to_upright(annotations, image_path, annotation_frame, names)
    losses = write_annotations(annotations, target, to, image_path=image_path, image_prefix=image_prefix)
    words = [word for page in annotations.pages.values() for word in page.words]
    ignored = sum(word.ignore for word in words)
    missing = 0 if image_path is None else sum(not (image_path / name).is_file() for name in annotations.pages)
    notes = (*annotations.notes, *losses)
    return ConversionSummary(annotations.format, len(annotations.pages), len(words), ignored, missing, turned, notes)


def _check_target(source: Path, target: Path, to: str, overwrite: bool) -> None:
    if FORMATS[to].write_page is not None:
        if target.exists() and not target.is_dir():
            raise ConfigError(
                f"target={target} is a file, and {to} is a folder of files. Pass the name of a folder",
                setting="target",
                value=target,
                path=target,
            )
        return
    # A .txt written into the folder that is read would be an annotation file the next time.
    if to == "native" and target.suffix.lower() != ".json":
        raise ConfigError(
            f"target={target}: the native format is JSON. Use a name that ends in .json",
            setting="target",
            value=target,
            path=target,
        )
    if not target.exists():
        return
    if target.samefile(source):
        raise ConfigError(
            f"target={target} is the source itself. Choose another name for the converted file",
            setting="target",
            value=target,
            path=target,
        )
    if target.is_dir():
        raise ConfigError(
            f"target={target} is a folder. Pass the name of a file in it", setting="target", value=target, path=target
        )
    if not overwrite:
        raise ConfigError(
            f"target={target} exists. Choose another name, or overwrite=True (--overwrite)",
            setting="target",
            value=target,
            path=target,
        )


def _refuse_existing(annotations: Annotations, target: Path, to: str) -> None:
    for file in files_of(annotations.pages, target, to).values():
        if file.exists():
            raise ConfigError(
                f"target={target}: {file} exists. Choose another folder, or overwrite=True (--overwrite)",
                setting="target",
                value=target,
                path=file,
            )
