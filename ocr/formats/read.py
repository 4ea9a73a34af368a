"""From an annotation file or folder in any known format to pages of words."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError, ConfigError, near_names
from ocr.formats.annotation import Annotations, Page, PageStream, Word
from ocr.formats.coco import parse_coco
from ocr.formats.ctw1500 import parse_ctw1500
from ocr.formats.detect import detect
from ocr.formats.foreign import answer_by_suffix, name_of_json
from ocr.formats.icdar import parse_icdar2013, parse_icdar2015
from ocr.formats.lines import list_faults, shorten
from ocr.formats.names import ImageNames
from ocr.formats.native import keep_native, looks_native, parse_native, refuse_duplicates, stream_native
from ocr.formats.paddle import parse_paddle
from ocr.formats.total_text import parse_total_text

FORMATS = {
    "native": 'one JSON file: {"images": {"a.jpg": {"words": {"0001": {"points": [[x, y], ...]}}}}}',
    "icdar2015": "a text file an image: x1,y1,x2,y2,x3,y3,x4,y4,text",
    "icdar2013": 'a text file an image: left, top, right, bottom, "text"',
    "total_text": "a text file an image: x: [[...]], y: [[...]], ornt: [...], transcriptions: [...]",
    "ctw1500": "an XML or text file an image: x1,y1,...,x14,y14,####text",
    "coco": "one JSON file with polygon segmentation, COCO-Text and TextOCR included",
    "paddle": "one text file: path<TAB>[{...}, ...], as PaddleOCR has it",
}
STREAMED_BYTES = 64 << 20
"""A native JSON of this size takes about 1 GB in memory as a whole."""
PAGE_PARSERS: dict[str, Callable[[str, str], tuple[Word, ...]]] = {
    "icdar2015": parse_icdar2015,
    "icdar2013": parse_icdar2013,
    "total_text": parse_total_text,
    "ctw1500": parse_ctw1500,
}


def read_annotations(
    path: str | os.PathLike[str],
    format: str = "auto",
    image_path: str | os.PathLike[str] | None = None,
    categories: str | Sequence[str] = "auto",
) -> Annotations:
    """Read a file or a folder; the words are as written, not yet validated (see `ocr.formats.validate`).

    `categories` are the names of those categories of a COCO file that are text; "auto": those named like text.
    """
    if format != "auto" and format not in FORMATS:
        raise ConfigError(f"annotation_format={format}: {near_names(format, ['auto', *FORMATS])} (--format)")
    is_list = isinstance(categories, Sequence) and not isinstance(categories, str)
    if categories != "auto" and not (is_list and categories):
        raise ConfigError(f"annotation_categories={categories} (--categories) must be auto or a list of names")
    path = Path(path)
    names = ImageNames(None if image_path is None else Path(image_path))
    if not path.exists():
        raise AnnotationError(
            f"{path}: no such file or folder: set annotation_path (--annotation-path) to the annotations"
        )
    found = _read_folder(path, format, names) if path.is_dir() else _read_file(path, format, names, categories)
    if categories != "auto" and found.format != "coco":
        raise ConfigError(
            f"annotation_categories={list(categories)} (--categories), but {path} is {found.format}, and only coco has "
            "categories: leave it at auto"
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


def _read_file(path: Path, format: str, names: ImageNames, categories: str | Sequence[str]) -> Annotations:
    if _is_large_native(path, format):
        return Annotations(str(path), "native", keep_native(path), (), (path,))
    where, text = str(path), _read_text(path)
    if not text.strip() and format not in PAGE_PARSERS:
        raise AnnotationError(
            f"{where}: the file is empty: write it again, or set annotation_path (--annotation-path) to another"
        )
    if format == "auto" and not _is_json(text):
        format = "paddle" if _is_paddle(text) else detect(where, {path: text})
    notes: list[str] = []
    if format in PAGE_PARSERS:
        pages = {names.of_label(path): _parse_page(format, path, text, notes)}
    elif format == "paddle":
        pages = parse_paddle(text, where, names, notes)
    else:
        with _garbage_collection_paused():
            root = _parse_json(text, where)
            if format == "auto":
                format = _detect_json(root, where)
            if format == "coco":
                pages = parse_coco(root, where, names, categories, notes)
            else:
                pages = parse_native(root, where)
                refuse_duplicates(text, where, pages)
    return Annotations(where, format, pages, tuple(notes), (path,))


def _read_folder(folder: Path, format: str, names: ImageNames) -> Annotations:
    if format != "auto" and format not in PAGE_PARSERS:
        raise AnnotationError(
            f"{folder} is a folder, and annotation_format={format} (--format) is one file: name the file"
        )
    texts: dict[Path, str] = {}
    pages: dict[str, Page] = {}
    notes: list[str] = []
    faults: list[str] = []
    for label in _list_labels(folder):
        with _collected(faults):
            texts[label] = _read_text(label)
    if format == "auto" and not faults:
        format = detect(str(folder), texts)
    for label, text in texts.items() if format != "auto" else ():
        with _collected(faults):
            name = names.of_label(label)
            if name in pages:
                raise AnnotationError(f"{label}: {name} is annotated by another file too: remove or rename one of them")
            pages[name] = _parse_page(format, label, text, notes)
    if faults:
        raise AnnotationError(list_faults(faults))
    return Annotations(str(folder), format, pages, tuple(notes), tuple(texts))


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    """Go on after an error, so that all of a folder are reported at once."""
    try:
        yield
    except AnnotationError as error:
        faults.append(str(error))


def _parse_page(format: str, label: Path, text: str, notes: list[str]) -> Page:
    """The page of one label file, without regions of a single point: there is nothing in them to draw or to ignore."""
    words = PAGE_PARSERS[format](text, str(label))
    single = [word.key for word in words if len(word.points) == 1]
    if not single:
        return Page(words)
    unit = "word" if text.lstrip().startswith("<") else "line"
    notes.extend(f"{label}, {unit} {int(key)}: skipped, it has one point, and a polygon needs three" for key in single)
    return Page(tuple([word for word in words if len(word.points) != 1]))


def _list_labels(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    labels = [file for file in files if file.suffix.lower() in (".txt", ".xml")]
    if labels:
        return labels
    answer = next((answer for file in files if (answer := answer_by_suffix(file))), None)
    cure = "set annotation_path (--annotation-path) to the folder of the .txt or .xml files, or to one JSON file"
    raise AnnotationError(f"{folder}: no annotation files in this folder: {answer or cure}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        answer = answer_by_suffix(path) or f"not UTF-8 at byte {error.start}: save the file as UTF-8"
        raise AnnotationError(f"{path}: {answer}") from error
    except OSError as error:
        raise AnnotationError(
            f"{path}: cannot be read ({error.strerror}): set annotation_path (--annotation-path) to a file"
        ) from error


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(
            f"{where}: not valid JSON ({error}): write it again, or set annotation_format (--format) to its format"
        ) from error


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


def _is_json(text: str) -> bool:
    return text.lstrip()[0] in "{[" and not _is_paddle(text)


def _is_paddle(text: str) -> bool:
    first = text.lstrip().split("\n", 1)[0]
    return "\t[" in first and not first.startswith("{")


def _detect_json(root: Any, where: str) -> str:
    if isinstance(root, dict):
        if (isinstance(root.get("images"), list) and "annotations" in root) or {"imgs", "anns"} <= root.keys():
            return "coco"
        if "images" in root:
            return "native"
    foreign = name_of_json(root)
    looks = "the JSON is in no known format" if foreign is None else f"this looks like {foreign}, which is not read"
    held = shorten(list(root), 60) if isinstance(root, dict) else f"a {type(root).__name__}"
    raise AnnotationError(
        f'{where}: {looks}: it holds {held}; native is {{"images": {{...}}}}, coco has lists "images" and '
        '"annotations" or objects "imgs" and "anns": set annotation_format (--format) to one of them, or convert it'
    )
