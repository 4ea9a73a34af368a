"""Write the native annotation JSON from any format that is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ocr.errors import AnnotationError, ConfigError
from ocr.formats.native import write_native
from ocr.formats.read import read_annotations


@dataclass(frozen=True, slots=True)
class ConversionSummary:
    """What was converted: the format it was in, how many pages and words, how many of the words are ignored.

    `missing` counts the pages whose image is not in the image folder; without a folder none is looked for. `notes`
    say what was skipped or assumed.
    """

    format: str
    pages: int
    words: int
    ignored: int
    missing: int = 0
    notes: tuple[str, ...] = ()


def convert_annotations(
    source: Path,
    target: Path,
    format: str = "auto",
    image_path: Path | None = None,
    overwrite: bool = False,
    categories: str | Sequence[str] = "auto",
) -> ConversionSummary:
    """Read `source`, a file or a folder, and write `target`, a JSON file.

    COCO and PaddleOCR name images by path. With `image_path`, the longest tail of the path that
    exists there is used; without it, the relative path as written.
    """
    if not source.exists():
        raise AnnotationError(f"{source}: no such file or folder: name the annotations to convert")
    _check_target(source, target, overwrite)
    annotations = read_annotations(source, format, image_path, categories)
    write_native(annotations, target)
    words = [word for page in annotations.pages.values() for word in page.words]
    ignored = sum(word.ignore for word in words)
    missing = 0 if image_path is None else sum(not (image_path / name).is_file() for name in annotations.pages)
    return ConversionSummary(
        annotations.format, len(annotations.pages), len(words), ignored, missing, annotations.notes
    )


def _check_target(source: Path, target: Path, overwrite: bool) -> None:
    # A .txt written into the folder that is read would be an annotation file the next time.
    if target.suffix.lower() != ".json":
        raise ConfigError(f"target={target}: the native format is JSON: give a name that ends in .json")
    if not target.exists():
        return
    if target.samefile(source):
        raise ConfigError(f"target={target} is the source itself: give the converted file another name")
    if target.is_dir():
        raise ConfigError(f"target={target} is a folder: give the name of a file in it")
    if not overwrite:
        raise ConfigError(f"target={target} exists: give another name, or overwrite=True (--overwrite)")
