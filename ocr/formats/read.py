"""From an annotation file or folder in any known format to pages of words."""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ocr.errors import AnnotationError, ConfigError, near_names
from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.coco import parse_coco
from ocr.formats.ctw1500 import MARK, parse_ctw1500
from ocr.formats.icdar import BOX, parse_icdar2013, parse_icdar2015
from ocr.formats.lines import leading_numbers, numbered_lines, shorten
from ocr.formats.names import ImageNames
from ocr.formats.native import parse_native, refuse_duplicates
from ocr.formats.paddle import parse_paddle
from ocr.formats.total_text import RECORD_START, parse_total_text

FORMATS = {
    "native": 'one JSON file: {"images": {"a.jpg": {"words": {"0001": {"points": [[x, y], ...]}}}}}',
    "icdar2015": "a text file an image: x1,y1,x2,y2,x3,y3,x4,y4,text",
    "icdar2013": 'a text file an image: left, top, right, bottom, "text"',
    "total_text": "a text file an image: x: [[...]], y: [[...]], ornt: [...], transcriptions: [...]",
    "ctw1500": "an XML or text file an image: x1,y1,...,x14,y14,####text",
    "coco": "one JSON file with polygon segmentation, COCO-Text and TextOCR included",
    "paddle": "one text file: path<TAB>[{...}, ...], as PaddleOCR has it",
}
PAGE_PARSERS: dict[str, Callable[[str, str], tuple[Word, ...]]] = {
    "icdar2015": parse_icdar2015,
    "icdar2013": parse_icdar2013,
    "total_text": parse_total_text,
    "ctw1500": parse_ctw1500,
}
# One file may hold only words of four corners, and Total-Text shows itself by a curved one.
SAMPLED_FILES = 20


def read_annotations(
    path: str | os.PathLike[str], format: str = "auto", image_path: str | os.PathLike[str] | None = None
) -> Annotations:
    """Read a file or a folder; the words are as written, not yet judged (see `ocr.formats.validate`)."""
    if format != "auto" and format not in FORMATS:
        raise ConfigError(f"annotation_format={format}: {near_names(format, ['auto', *FORMATS])} (--format)")
    path = Path(path)
    names = ImageNames(None if image_path is None else Path(image_path))
    if path.is_dir():
        return _read_folder(path, format, names)
    if not path.exists():
        raise AnnotationError(
            f"{path}: no such file or folder: set annotation_path (--annotation-path) to the annotations"
        )
    return _read_file(path, format, names)


def _read_file(path: Path, format: str, names: ImageNames) -> Annotations:
    where, text = str(path), _read_text(path)
    if not text.strip() and format not in PAGE_PARSERS:
        raise AnnotationError(
            f"{where}: the file is empty: write it again, or set annotation_path (--annotation-path) to another"
        )
    if format == "auto" and not _is_json(text):
        format = "paddle" if _is_paddle(text) else _detect(where, {path: text})
    if format in PAGE_PARSERS:
        page = Page(PAGE_PARSERS[format](text, where))
        return Annotations(where, format, {names.of_label(path): page})
    if format == "paddle":
        return Annotations(where, format, parse_paddle(text, where, names))
    with _garbage_collection_paused():
        root = _parse_json(text, where)
        if format == "auto":
            format = "coco" if _is_coco(root) else "native"
        if format == "coco":
            return Annotations(where, format, parse_coco(root, where, names))
        pages = parse_native(root, where)
        refuse_duplicates(text, where, pages)
    return Annotations(where, format, pages)


def _read_folder(folder: Path, format: str, names: ImageNames) -> Annotations:
    if format != "auto" and format not in PAGE_PARSERS:
        raise AnnotationError(
            f"{folder} is a folder, and annotation_format={format} (--format) is one file: name the file"
        )
    labels = _list_labels(folder)
    if format == "auto":
        format = _detect(str(folder), _sample(labels))
    pages: dict[str, Page] = {}
    for label in labels:
        name = names.of_label(label)
        if name in pages:
            raise AnnotationError(f"{label}: {name} is annotated by another file too: remove or rename one of them")
        pages[name] = Page(PAGE_PARSERS[format](_read_text(label), str(label)))
    return Annotations(str(folder), format, pages)


def _list_labels(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    labels = [file for file in files if file.suffix.lower() in (".txt", ".xml")]
    if labels:
        return labels
    if any(file.suffix.lower() == ".mat" for file in files):
        cure = "Matlab files are not supported: use the text files of the dataset"
    else:
        cure = "set annotation_path (--annotation-path) to the folder of the .txt or .xml files, or to one JSON file"
    raise AnnotationError(f"{folder}: no annotation files in this folder: {cure}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnnotationError(f"{path}: not UTF-8 at byte {error.start}: save the file as UTF-8") from error
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


def _is_coco(root: Any) -> bool:
    if not isinstance(root, dict):
        return False
    return (isinstance(root.get("images"), list) and "annotations" in root) or {"imgs", "anns"} <= root.keys()


def _sample(labels: list[Path]) -> dict[Path, str]:
    samples: dict[Path, str] = {}
    for label in labels:
        text = _read_text(label)
        if text.strip():
            samples[label] = text
        if len(samples) == SAMPLED_FILES:
            break
    return samples


def _detect(where: str, samples: dict[Path, str]) -> str:
    """The format of per-image files, from the lines in them."""
    seen: Counter[str] = Counter()
    for label, text in samples.items():
        if RECORD_START.search(text):
            return "total_text"
        if text.lstrip().startswith("<"):
            return "ctw1500"
        for number, line in numbered_lines(text):
            seen[_shape(line) or _undecided(f"{label}, line {number}: {shorten(line)} fits none")] += 1
    if not seen:
        _undecided(f"{where}: all annotation files are empty, so nothing shows their format")
    if seen["marked"] * 2 > seen.total():
        return "ctw1500"
    if seen["box"] == seen.total():
        return "icdar2013"
    if seen["box"]:
        _undecided(f"{where}: boxes of two corners and polygons are mixed")
    # A quad whose text begins with two numbers looks like a polygon, but that is rare.
    return "total_text" if seen["polygon"] * 10 >= seen.total() else "icdar2015"


def _shape(line: str) -> str | None:
    fields, rest = leading_numbers(line)
    count = len(fields)
    if (rest is not None and rest.startswith(MARK) and count >= 6) or (rest is None and count == 32):
        return "marked"
    # Numbers between spaces may be anything (YOLO, say), but only ICDAR-2013 puts a quoted text behind four of them.
    spaced = BOX.fullmatch(line) if count == 0 else None
    if count in (4, 5) or (spaced is not None and (spaced[5] or "").startswith('"')):
        return "box"
    if count == 6 or (count >= 10 and count % 2 == 0 and rest is not None):
        return "polygon"
    return "quad" if count >= 8 else None


def _undecided(evidence: str) -> NoReturn:
    raise AnnotationError(f"{evidence}: set annotation_format (--format) to one of {', '.join(FORMATS)}")
