"""From an annotation file or folder in any known format to pages of words."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ocr.errors import AnnotationError, ConfigError, near_names
from ocr.formats.annotation import Annotations, Page, PageStream
from ocr.formats.categories import Categories, choose_categories
from ocr.formats.detect import detect, detect_json, identify, mixed_formats, parse_content
from ocr.formats.foreign import answer_by_suffix
from ocr.formats.lines import collected, in_file, raise_collected
from ocr.formats.names import ImageNames
from ocr.formats.native import keep_native, looks_native, stream_native
from ocr.formats.page_builder import PageBuilder, parse_json
from ocr.formats.registry import FORMATS
from ocr.formats.yolo import is_data_file, labels_of

STREAMED_BYTES = 64 << 20
"""A native JSON of this size takes about 1 GB in memory as a whole."""
SUFFIXES = (".txt", ".xml"), (".gt",), (".json",)
"""Suffixes of annotation files in a folder; a group is looked for only if no file has a suffix of an earlier group."""
_CLASS_LISTS = ("classes.txt", "obj.names")


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
            f"annotation_format={format} is unknown. {near_names(format, ['auto', *FORMATS])}",
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
    images = None if image_path is None else Path(image_path)
    names = ImageNames(images)
    if not path.exists():
        raise AnnotationError(
            f"{path}: no such file or folder. Set annotation_path to the annotations",
            setting="annotation_path",
            path=path,
        )
    if path.is_file() and is_data_file(path) and format in ("auto", "yolo"):
        path, format = labels_of(path, images), "yolo"
    with _garbage_collection_paused(), in_file(path):
        found = (_read_folder if path.is_dir() else _read_file)(path, format, names, categories)
    if categories != "auto" and FORMATS[found.format].categories is None:
        raise ConfigError(
            f"annotation_categories={list(categories)} (--categories), but {found.format} of {path} has no "
            "categories. Leave it at auto",
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
    where, text = str(path), _read_text(path)
    may_be_empty = format != "auto" and FORMATS[format].content == "text" and FORMATS[format].suffixes
    if not text.strip() and not may_be_empty:
        raise AnnotationError(
            f"{where}: the file is empty. Export it again, or set annotation_path to another", value="", path=path
        )
    format, root = identify(path, text) if format == "auto" else (format, parse_content(format, text, where))
    pages = PageBuilder(path, text, root, names)
    pages.categories = _choose_categories(format, _categories_in(format, pages), where, wanted, pages.notes)
    FORMATS[format].read(pages)
    found = pages.finish()
    return Annotations(where, format, found, (*pages.notes, *pages.categories.notes(where)), (path,))


def _read_folder(folder: Path, format: str, names: ImageNames, wanted: str | Sequence[str]) -> Annotations:
    """The pages of all files; one error lists the errors of all of them."""
    _check_one_per_image(folder, format)
    files = _Files(_list_labels(folder, format), names)
    format, known = _survey(folder, files, format)
    _check_one_per_image(folder, format)
    notes: list[str] = []
    categories = _choose_categories(format, known, str(folder), wanted, notes)
    pages: dict[str, Page] = {}
    for label in files.labels:
        with collected(files.errors, label):
            builder = files.builder(label, format, categories, notes)
            FORMATS[format].read(builder)
            for name, page in builder.finish().items():
                if name in pages:
                    raise AnnotationError(
                        f"{label}: {name} is annotated by two files. Remove or rename one of them", value=name
                    )
                pages[name] = page
    raise_collected(files.errors)
    if FORMATS[format].unlabelled_are_empty and (empty := [name for name in names.images() if name not in pages]):
        notes.append(f"{folder}: {len(empty)} images have no file, and are pages without text, as {format} has it")
        pages |= {name: Page((), names.size_of(name, str(folder))) for name in empty}
    return Annotations(str(folder), format, pages, (*notes, *categories.notes(str(folder))), tuple(files.labels))


class _Files:
    """The files of a folder; JSON is not kept in memory, since it can hold the image too."""

    def __init__(self, labels: list[Path], names: ImageNames) -> None:
        self.errors: list[AnnotationError] = []
        self.are_json = labels[0].suffix.lower() == ".json"
        self.texts: dict[Path, str] = {}
        self.labels: list[Path] = labels if self.are_json else []
        self._names = names
        for label in [] if self.are_json else labels:
            with collected(self.errors, label):
                self.texts[label] = _read_text(label)
                self.labels.append(label)

    def text_of(self, label: Path) -> str:
        return _read_text(label) if self.are_json else self.texts[label]

    def builder(
        self, label: Path, format: str, categories: Categories | None = None, notes: list[str] | None = None
    ) -> PageBuilder:
        text = self.text_of(label)
        return PageBuilder(label, text, parse_content(format, text, str(label)), self._names, categories, notes)


def _survey(folder: Path, files: _Files, format: str) -> tuple[str, list[str]]:
    """The format of all files, and the categories in them."""
    if format == "auto" and not files.are_json:
        raise_collected(files.errors)
        format = detect(str(folder), files.texts)
    if format != "auto" and FORMATS[format].categories is None:
        return format, []
    found: dict[str, list[Path]] = {}
    known: list[str] = []
    for label in files.labels:
        with collected(files.errors, label):
            is_known = format != "auto"
            name = format if is_known else detect_json(parse_json(files.text_of(label), str(label)), str(label))
            found.setdefault(name, []).append(label)
            known.extend(_categories_in(name, files.builder(label, name)))
    raise_collected(files.errors)
    if len(found) > 1:
        raise mixed_formats(str(folder), found)
    return next(iter(found)), known


def _categories_in(format: str, pages: PageBuilder) -> list[str]:
    categories = FORMATS[format].categories
    return [] if categories is None else list(categories(pages))


def _choose_categories(
    format: str, known: list[str], where: str, wanted: str | Sequence[str], notes: list[str]
) -> Categories:
    if FORMATS[format].categories is None:
        return Categories()
    return choose_categories(known, where, wanted, notes, FORMATS[format].labels_may_be_texts)


def _check_one_per_image(folder: Path, format: str) -> None:
    if format != "auto" and not FORMATS[format].suffixes:
        raise AnnotationError(
            f"{folder} is a folder, and annotation_format={format} is one file. Name the file",
            setting="annotation_format",
            value=format,
            path=folder,
        )


def _list_labels(folder: Path, format: str) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for suffixes in SUFFIXES if format == "auto" else [FORMATS[format].suffixes]:
        if labels := [file for file in files if file.suffix.lower() in suffixes and file.name not in _CLASS_LISTS]:
            return labels
    unread = next((file for file in files if answer_by_suffix(file)), None)
    answer = None if unread is None else answer_by_suffix(unread)
    wanted = ".txt, .xml or .json" if format == "auto" else " or ".join(FORMATS[format].suffixes)
    fix = f"Set annotation_path to the folder of the {wanted} files, or to one JSON file"
    raise AnnotationError(
        f"{folder}: no annotation files in this folder. {answer or fix}",
        setting="annotation_path",
        value=None if unread is None else unread.suffix,
        path=folder,
    )


def _read_text(path: Path) -> str:
    """The text of a file, which must be UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        answer = answer_by_suffix(path)
        raise AnnotationError(
            f"{path}: {answer or f'not UTF-8 at byte {error.start}. Save the file as UTF-8'}",
            value=path.suffix if answer else error.start,
            path=path,
        ) from error
    except OSError as error:
        raise AnnotationError(
            f"{path}: cannot be read ({error.strerror}). Set annotation_path to a file",
            setting="annotation_path",
            path=path,
        ) from error


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """JSON makes no garbage: without a collection, 5600 pages with 53 words each are read in 1.2 s instead of 2.9."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
