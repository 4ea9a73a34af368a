"""Which format per-image annotation files are in, from every line of every file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.foreign import answer_by_suffix, name_of_json, name_of_line, refusals
from ocr.formats.icdar import BOX
from ocr.formats.lines import MARK, is_one_point, leading_numbers, list_faults, numbered_lines, shorten, to_number
from ocr.formats.outline import judge_numbers
from ocr.formats.registry import FORMATS
from ocr.formats.td500 import is_td500
from ocr.formats.total_text import RECORD_START
from ocr.formats.xml_tree import looks_like_xml, root_tag

SHAPES = {
    "xml": "XML",
    "record": "records of Total-Text, x: [[...]]",
    "marked": "polygons before ####",
    "offsets": "32 numbers",
    "box": "boxes of two corners",
    "quad": "four corners",
    "polygon": "polygons",
    "td500": "rotated boxes of MSRA-TD500",
    "pascal_voc": "Pascal VOC",
    "page_xml": "PAGE XML",
    "cvat": "CVAT",
}
_ROOT_TAGS = {"annotation": "pascal_voc", "PcGts": "page_xml", "annotations": "cvat"}
_ALONE = {"td500", *_ROOT_TAGS.values()}
"""Formats whose files look like no other, and are not mixed with any."""
_CURE = "set annotation_format (--format) to its format if it is one of them, or convert it"
_CTW1500 = {"xml", "marked", "offsets"}
_NAMED_FILES = 3


def detect(where: str, texts: Mapping[Path, str]) -> str:
    """The format that reads all of the files; if there is none, the error says which files are which."""
    files: dict[str, list[Path]] = {}
    lines: Counter[str] = Counter()
    foreign: list[tuple[Path, int, str]] = []
    for path, text in texts.items():
        found = _shapes(path, text, foreign)
        lines.update(found)
        for shape in found:
            files.setdefault(shape, []).append(path)
    if foreign:
        raise _foreign_lines(foreign)
    files.pop("point", None)
    if not files:
        raise AnnotationError(
            f"{where}: no annotation file has a polygon in it, so nothing shows their format: "
            "set annotation_format (--format)",
            setting="annotation_format",
            path=where,
        )
    format = _choose(set(files), 2 * lines["marked"] > lines.total())
    if format is None:
        raise mixed_formats(where, files)
    return format


def _choose(present: set[str], mostly_marked: bool) -> str | None:
    if present <= _CTW1500:
        return "ctw1500"
    if present == {"box"}:
        return "icdar2013"
    if present & _ALONE:
        return present.pop() if len(present) == 1 else None
    curved = present & {"polygon", "record"}
    # An outline of 16 points without a text looks like the 32 numbers of CTW1500.
    if present & {"box", "xml"} or ("offsets" in present and not curved):
        return None
    if mostly_marked and "record" not in present:
        return "ctw1500"
    return "total_text" if curved else "icdar2015"


def _shapes(path: Path, text: str, foreign: list[tuple[Path, int, str]]) -> Counter[str]:
    """How many lines of each shape a file has; lines of no known shape are added to `foreign`."""
    if RECORD_START.search(text):
        return Counter(["record"])
    if looks_like_xml(text):
        return Counter([_ROOT_TAGS.get(root_tag(text) or "", "xml")])
    seen: Counter[str] = Counter()
    for number, line in numbered_lines(text):
        shape = _shape(line)
        if shape is None:
            foreign.append((path, number, line))
        else:
            seen[shape] += 1
    return seen


def _shape(line: str) -> str | None:
    fields, rest = leading_numbers(line)
    count = len(fields)
    if rest is not None and rest.startswith(MARK) and count >= 6:
        return "marked"
    if rest is None and count == 32:
        return "offsets"
    if count == 6 or (count >= 10 and judge_numbers([to_number(field) for field in fields]) == "points"):
        return "polygon"
    if count >= 8:
        return "quad"
    # Numbers between spaces can be anything (YOLO, say), but only ICDAR-2013 puts a quoted text behind four of them.
    spaced = BOX.fullmatch(line) if count == 0 else None
    if is_td500(line):
        return "td500"
    if count == 4 or (spaced is not None and (spaced[5] or "").startswith('"')):
        return "box"
    return "point" if is_one_point(line) else None


def _foreign_lines(foreign: list[tuple[Path, int, str]]) -> AnnotationError:
    faults = []
    for path, number, line in foreign:
        name = name_of_line(line)
        looks = "is in no known format" if name is None else f"looks like {name}, which is not read"
        faults.append(f"{path}, line {number}: {shorten(line)} {looks}")
    path, _, line = foreign[0]
    answer = answer_by_suffix(path)
    tried = f"Tried on the first of these lines: {refusals(line)}: {_CURE}"
    return AnnotationError(
        f"{list_faults(faults)}\n{tried}" if answer is None else f"{path}: {answer}",
        value=line,
        path=path,
    )


def mixed_formats(where: str, files: Mapping[str, list[Path]]) -> AnnotationError:
    """The error of a folder whose files are of several formats, with the names of some of each."""
    groups = []
    for shape, paths in files.items():
        names = ", ".join(path.name for path in paths[:_NAMED_FILES])
        more = ", ..." if len(paths) > _NAMED_FILES else ""
        groups.append(f"{SHAPES.get(shape, shape)} in {len(paths)} file{'s'[: len(paths) > 1]}: {names}{more}")
    return AnnotationError(
        f"{where}: several formats are mixed ({'; '.join(groups)}): put each into its own folder, "
        "or set annotation_format (--format) to one that reads all files",
        value=list(files),
        path=where,
    )


def detect_json(root: Any, where: str) -> str:
    """The one format that recognises a JSON value; anything else is an error that asks for the format."""
    found = [name for name, format in FORMATS.items() if format.recognise is not None and format.recognise(root)]
    if len(found) == 1:
        return found[0]
    held = shorten(list(root), 60) if isinstance(root, dict) else f"a {type(root).__name__}"
    foreign = name_of_json(root)
    if found:
        looks = f"this might be {' or '.join(found)}"
    else:
        looks = "the JSON is in no known format" if foreign is None else f"this looks like {foreign}, which is not read"
    known = ", ".join(name for name, format in FORMATS.items() if format.recognise is not None)
    raise AnnotationError(
        f'{where}: {looks}: it holds {held}; native is {{"images": {{...}}}}: set annotation_format (--format) to its '
        f"format if that is one of {known}, "
        "or convert it (docs/data.md shows them)",
        value=found or foreign or held,
        path=where,
    )
