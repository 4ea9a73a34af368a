"""A folder with one annotation file per image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Annotations, Page
from ocr.formats.contents import parse_content, read_text
from ocr.formats.detect import detect, detect_json, mixed_formats
from ocr.formats.document import Document, parse_json
from ocr.formats.foreign import answer_by_suffix
from ocr.formats.lines import collected, merged, raise_faults
from ocr.formats.names import ImageNames
from ocr.formats.registry import FORMATS

SUFFIXES = (".txt", ".xml"), (".gt",), (".json",)
"""How annotation files end; those of a group are looked for only if there is none of the group before."""


def read_folder(folder: Path, format: str, names: ImageNames, wanted: str | Sequence[str]) -> Annotations:
    """The pages of all files; one error lists the faults of all of them."""
    _check_one_per_image(folder, format)
    files = _Files(_list_labels(folder, format))
    faults, notes = files.faults, list[str]()
    format, known = _survey(folder, files, format)
    if format == "auto":
        raise merged(faults)
    _check_one_per_image(folder, format)
    categories = FORMATS[format].choose(known, str(folder), wanted, notes)
    pages: dict[str, Page] = {}
    for label in files:
        with collected(faults, label):
            text = files.text_of(label)
            root = parse_content(format, text, str(label))
            for name, page in FORMATS[format].parse(Document(label, text, root, names, categories, notes)).items():
                if name in pages:
                    raise AnnotationError(
                        f"{label}: {name} is annotated by another file too: remove or rename one of them", value=name
                    )
                pages[name] = page
    raise_faults(faults)
    return Annotations(str(folder), format, pages, (*notes, *categories.notes(str(folder))), tuple(files))


class _Files:
    """The files of a folder; JSON is not kept in memory, since it may hold the image too."""

    def __init__(self, labels: list[Path]) -> None:
        self.faults: list[AnnotationError] = []
        self.are_json = labels[0].suffix.lower() == ".json"
        self.texts: dict[Path, str] = {}
        self._labels: list[Path] = labels if self.are_json else []
        for label in [] if self.are_json else labels:
            with collected(self.faults, label):
                self.texts[label] = read_text(label)
                self._labels.append(label)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._labels)

    def text_of(self, label: Path) -> str:
        return read_text(label) if self.are_json else self.texts[label]


def _survey(folder: Path, files: _Files, format: str) -> tuple[str, list[str]]:
    """The format of all files, "auto" if they cannot be read, and the categories in them."""
    if format == "auto" and not files.are_json:
        if files.faults:
            return "auto", []
        format = detect(str(folder), files.texts)
    if format != "auto" and FORMATS[format].categories is None:
        return format, []
    found: dict[str, list[Path]] = {}
    known: list[str] = []
    for label in files:
        with collected(files.faults, label):
            root = _root_of(files, label, format)
            name = detect_json(root, str(label)) if format == "auto" else format
            found.setdefault(name, []).append(label)
            known.extend(FORMATS[name].categories_in(root))
    raise_faults(files.faults)
    if len(found) > 1:
        raise mixed_formats(str(folder), found)
    return next(iter(found)), known


def _root_of(files: _Files, label: Path, format: str) -> Any:
    text = files.text_of(label)
    return parse_json(text, str(label)) if format == "auto" else parse_content(format, text, str(label))


def _check_one_per_image(folder: Path, format: str) -> None:
    if format != "auto" and not FORMATS[format].suffixes:
        raise AnnotationError(
            f"{folder} is a folder, and annotation_format={format} (--format) is one file: name the file",
            setting="annotation_format",
            value=format,
            path=folder,
        )


def _list_labels(folder: Path, format: str) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for suffixes in SUFFIXES if format == "auto" else [FORMATS[format].suffixes]:
        if labels := [file for file in files if file.suffix.lower() in suffixes]:
            return labels
    unread = next((file for file in files if answer_by_suffix(file)), None)
    answer = None if unread is None else answer_by_suffix(unread)
    wanted = ".txt, .xml or .json" if format == "auto" else " or ".join(FORMATS[format].suffixes)
    cure = f"set annotation_path (--annotation-path) to the folder of the {wanted} files, or to one JSON file"
    raise AnnotationError(
        f"{folder}: no annotation files in this folder: {answer or cure}",
        setting="annotation_path",
        value=None if unread is None else unread.suffix,
        path=folder,
    )
