"""From an annotation file or folder in any known format to pages of words."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ocr.errors import AnnotationError, ConfigError, near_names
from ocr.formats.annotation import Annotations, PageStream
from ocr.formats.contents import identify, parse_content, read_text
from ocr.formats.document import Document
from ocr.formats.folder import read_folder
from ocr.formats.lines import in_file
from ocr.formats.names import ImageNames
from ocr.formats.native import keep_native, looks_native, stream_native
from ocr.formats.registry import FORMATS

STREAMED_BYTES = 64 << 20
"""A native JSON of this size takes about 1 GB in memory as a whole."""


def read_annotations(
    path: str | os.PathLike[str],
    format: str = "auto",
    image_path: str | os.PathLike[str] | None = None,
    categories: str | Sequence[str] = "auto",
) -> Annotations:
    """Read a file or a folder; the words are as written, not yet validated (see `ocr.formats.validate`).

    `categories` are the names of those categories that are text, if the format has others; "auto": those named so.
    """
    if format != "auto" and format not in FORMATS:
        raise ConfigError(
            f"annotation_format={format}: {near_names(format, ['auto', *FORMATS])} (--format)",
            setting="annotation_format",
            value=format,
        )
    is_list = isinstance(categories, Sequence) and not isinstance(categories, str)
    if categories != "auto" and not (is_list and categories):
        raise ConfigError(
            f"annotation_categories={categories} (--categories) must be auto or a list of names",
            setting="annotation_categories",
            value=categories,
        )
    path = Path(path)
    names = ImageNames(None if image_path is None else Path(image_path))
    if not path.exists():
        raise AnnotationError(
            f"{path}: no such file or folder: set annotation_path (--annotation-path) to the annotations",
            setting="annotation_path",
            path=path,
        )
    read = read_folder if path.is_dir() else _read_file
    with _garbage_collection_paused(), in_file(path):
        found = read(path, format, names, categories)
    if categories != "auto" and FORMATS[found.format].categories is None:
        raise ConfigError(
            f"annotation_categories={list(categories)} (--categories), but {path} is {found.format}, which has no "
            "categories: leave it at auto",
            setting="annotation_categories",
            value=categories,
            path=path,
        )
    return found


def stream_annotations(
    path: str | os.PathLike[str],
    format: str = "auto",
    image_path: str | os.PathLike[str] | None = None,
    categories: str | Sequence[str] = "auto",
) -> PageStream:
    """The pages of `read_annotations`, one by one; a large native JSON is never in memory as a whole."""
    path = Path(path)
    if categories == "auto" and _is_large_native(path, format):
        return PageStream(str(path), stream_native(path))
    found = read_annotations(path, format, image_path, categories)
    return PageStream(found.path, found.pages.items(), found.notes)


def _is_large_native(path: Path, format: str) -> bool:
    is_large = format in ("auto", "native") and path.is_file() and path.stat().st_size >= STREAMED_BYTES
    return is_large and looks_native(path)


def _read_file(path: Path, format: str, names: ImageNames, wanted: str | Sequence[str]) -> Annotations:
    if _is_large_native(path, format):
        return Annotations(str(path), "native", keep_native(path), (), (path,))
    where, text = str(path), read_text(path)
    may_be_empty = format != "auto" and FORMATS[format].content == "text" and FORMATS[format].suffixes
    if not text.strip() and not may_be_empty:
        raise AnnotationError(
            f"{where}: the file is empty: export it again, or set annotation_path (--annotation-path) to another",
            value="",
            path=path,
        )
    format, root = identify(path, text) if format == "auto" else (format, parse_content(format, text, where))
    notes: list[str] = []
    known = FORMATS[format].categories_in(root)
    categories = FORMATS[format].choose(known, where, wanted, notes)
    pages = FORMATS[format].parse(Document(path, text, root, names, categories, notes))
    return Annotations(where, format, pages, (*notes, *categories.notes(where)), (path,))


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Nothing that JSON makes is garbage: not looking for any reads 5600 pages of 53 words in 1.2 s, not 2.9."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
