"""YOLO as ultralytics has it: a text file per image, a class and shares of the page per line; classes in data.yaml.

    class x_center y_center width height        a box
    class x1 y1 x2 y2 x3 y3 ...                 a polygon, as in segmentation; with four corners an oriented box

A last number that leaves the coordinates uneven is the confidence of a prediction. Labels lie in `labels/<split>/`
next to `images/<split>/`, and an image without a file has nothing on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page
from ocr.formats.categories import means_ignored
from ocr.formats.export import Export
from ocr.formats.lines import leading_numbers, numbered_lines, to_pairs, unreadable
from ocr.formats.page_builder import PageBuilder
from ocr.formats.values import box_corners, rounded, written

DATA_FILE = "data.yaml"
CLASSES = ("text", "ignore")
"""Of what is written; YOLO has no way to leave a region out, so that what is to be ignored is a class."""
_NAME_LISTS = ("classes.txt", "obj.names")
"""Classes by line, as labelImg and Darknet write them."""
_SLACK = 0.01
"""How far a share can be off the page: exporters round outwards."""


def is_yolo(line: str) -> bool:
    """Whether a line is one of YOLO: a whole number, then at least four shares of the page, between spaces.

    >>> is_yolo("0 0.48 0.63 0.69 0.71"), is_yolo("0 48 63 69 71"), is_yolo("0 0.1 0.2 0.3")
    (True, False, False)
    """
    fields, rest = leading_numbers(line, separator=None)
    if rest is not None or len(fields) < 5 or not fields[0].isdecimal():
        return False
    return all(-_SLACK <= float(field) <= 1 + _SLACK for field in fields[1:])


def is_data_file(path: Path) -> bool:
    """Whether a path is a data.yaml, under any name."""
    return path.suffix.lower() in (".yaml", ".yml")


def labels_of(data_file: Path, images: Path | None) -> Path:
    """The folder of labels that a data.yaml means: the one of the image folder, or of the only split it names."""
    root = _read_yaml(data_file)
    base = data_file.parent / str(root.get("path") or ".")
    named = {split: value for split in ("train", "val", "test") if isinstance(value := root.get(split), str)}
    folders = [images] if images is not None else [base / value for value in named.values()]
    if len(folders) != 1:
        raise AnnotationError(
            f"{data_file} names {len(folders)} splits ({', '.join(named) or 'none'}). Set image_path to the images of "
            "one, or annotation_path to its folder of labels",
            setting="image_path",
            value=list(named),
            path=data_file,
        )
    parts = list(folders[0].parts)
    if "images" not in parts:
        raise AnnotationError(
            f"{data_file}: {folders[0]} has no images/ in its path to replace with labels/. Set "
            "annotation_path to the folder of labels",
            setting="annotation_path",
            value=str(folders[0]),
            path=data_file,
        )
    parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts)


def yolo_classes(folder: Path) -> dict[str, str]:
    """Number and name of each class, as a data.yaml or a list next to the labels or above them says; else nothing."""
    for place in (folder, *list(folder.absolute().parents)[:2]):
        listed = sorted(place.glob("*.y*ml")) if place.is_dir() else []
        for file in sorted(listed, key=lambda file: file.name != DATA_FILE):
            if names := _names_in(_read_yaml(file)):
                return {str(number): name for number, name in names.items()}
        for name in _NAME_LISTS:
            if (place / name).is_file():
                lines = (place / name).read_text(encoding="utf-8-sig", errors="replace").split("\n")
                return {str(number): line.strip() for number, line in enumerate(lines) if line.strip()}
    return {}


def yolo_categories(pages: PageBuilder) -> Iterator[str]:
    """The class of each line."""
    names = yolo_classes(pages.path.parent)
    for _, line in numbered_lines(pages.text):
        number = line.split()[0]
        yield names.get(number, number)


def read_yolo(pages: PageBuilder) -> None:
    """Boxes, polygons and oriented boxes, with or without confidences; shares become pixels of the upright image."""
    names = yolo_classes(pages.path.parent)
    with pages.page() as page:
        page.of_label()
        assert page.name is not None
        page.size = pages.names.size_of(page.name, pages.where)
        for number, line in numbered_lines(pages.text):
            with pages.part():
                if not is_yolo(line):
                    raise unreadable(pages.where, number, line, "YOLO", "class and shares of the page from 0 to 1")
                first, *shares = line.split()
                category = names.get(first, first)
                if pages.categories.is_text(category):
                    outline = _outline([float(share) for share in shares], page.size)
                    page.word(outline, ignore=means_ignored(category), key=f"{number:04d}")


def _outline(shares: list[float], size: tuple[int, int]) -> list[list[float]]:
    width, height = size
    # What follows an even number of coordinates is a confidence.
    shares = shares[: len(shares) // 2 * 2]
    if len(shares) == 4:
        x, y, wide, high = shares
        corners = box_corners(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
    else:
        corners = to_pairs(shares)
    return [rounded((x * width, y * height)) for x, y in corners]


def write_yolo_page(name: str, page: Page, export: Export) -> str:
    """Polygons, which ultralytics takes for segmentation, for detection, and with four corners for oriented boxes."""
    width, height = export.size(name, page)
    lines = []
    for word, score in export.words(name, page):
        shares = [written(share) for x, y in word.points for share in (x / width, y / height)]
        confidence = [] if score is None else [written(score)]
        lines.append(" ".join([str(int(word.ignore)), *shares, *confidence]))
    return "".join(f"{line}\n" for line in lines)


def write_data_file(export: Export) -> tuple[Path, str]:
    """The data.yaml of the dataset, above `labels/`; splits that it names already stay."""
    parts = export.target.absolute().parts
    has_labels_folder = "labels" in parts
    at = len(parts) - 1 - parts[::-1].index("labels") if has_labels_folder else len(parts)
    file = Path(*parts[:at]) / DATA_FILE
    known: dict[str, Any] = _read_yaml(file) if file.is_file() else {}
    has_ignored = any(word.ignore for page in export.pages.values() for word in page.words)
    names = dict(enumerate(CLASSES[: 1 + has_ignored])) | _names_in(known)
    if names != dict(enumerate(CLASSES[: len(names)])):
        raise AnnotationError(
            f"{file} names other classes, {known.get('names')}, than {', '.join(CLASSES)}. Choose another folder",
            value=known.get("names"),
            path=file,
        )
    if has_ignored:
        export.notes.append("yolo cannot leave regions out: ignored words are written as the class ignore")
    if has_labels_folder:
        split = "/".join(parts[at + 1 :])
        # Without `path`, ultralytics starts from the folder of this file; "." would be the working directory.
        known[split or "train"] = "/".join(("images", *parts[at + 1 :]))
    else:
        export.notes.append("ultralytics looks for labels/<split>/ next to images/<split>/. Write there to train on it")
    known |= {"nc": len(names)} if "nc" in known else {}
    return file, yaml.safe_dump({**known, "names": names}, sort_keys=False, allow_unicode=True)


def _names_in(root: dict[str, Any]) -> dict[Any, str]:
    """The classes of a data.yaml by number, which are a list or a mapping there."""
    names = root.get("names")
    if not isinstance(names, list | dict):
        return {}
    return {number: str(name) for number, name in (names.items() if isinstance(names, dict) else enumerate(names))}


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        root = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise AnnotationError(f"{file}: not valid YAML ({error}). Correct it", value=str(error), path=file) from error
    return root if isinstance(root, dict) else {}
