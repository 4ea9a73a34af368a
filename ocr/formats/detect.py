"""The format that annotation files are in: what sniffs them, or what the shapes of all their lines say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.curved_text import RECORD_START
from ocr.formats.foreign import answer_by_suffix, name_of_json, refusals
from ocr.formats.icdar import BOX, is_td500
from ocr.formats.lines import (
    MARK,
    is_one_point,
    judge_numbers,
    leading_numbers,
    list_faults,
    numbered_lines,
    shorten,
    to_number,
)
from ocr.formats.page_builder import parse_json
from ocr.formats.registry import FORMATS
from ocr.formats.xml_tree import looks_like_xml, parse_xml, root_tag
from ocr.formats.yolo import is_yolo

SHAPES = {
    "xml": "XML",
    "record": "records of Total-Text, x: [[...]]",
    "marked": "polygons before ####",
    "offsets": "32 numbers",
    "box": "boxes of two corners",
    "quad": "four corners",
    "polygon": "polygons",
    "td500": "rotated boxes of MSRA-TD500",
    "yolo": "YOLO",
    "pascal_voc": "Pascal VOC",
    "page_xml": "PAGE XML",
    "alto": "ALTO",
    "cvat": "CVAT",
}
_XML = [name for name, format in FORMATS.items() if format.content == "xml"]
_ALONE = {"td500", "yolo", *_XML}
"""Formats whose files look like no other, and are not mixed with any."""
_CTW1500 = {"xml", "marked", "offsets"}
_NAMED_FILES = 3


def parse_content(format: str, text: str, where: str) -> Any:
    """What the reader of a format gets: the value of JSON, the first element of XML, None for other text."""
    match FORMATS[format].content:
        case "json":
            return parse_json(text, where)
        case "xml":
            return parse_xml(text, where)
        case _:
            return None


def identify(path: Path, text: str) -> tuple[str, Any]:
    """The format of a file that is not empty, and its parsed content."""
    where = str(path)
    for name, format in FORMATS.items():
        if format.content == "text" and format.sniff is not None and format.sniff(text):
            return name, None
    if text.lstrip()[0] in "{[":
        root = parse_json(text, where)
        return detect_json(root, where), root
    name = detect(where, {path: text})
    return name, parse_content(name, text, where)


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
            f"{where}: no annotation file has a polygon to tell the format by. Set annotation_format",
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
        tag = root_tag(text) or ""
        return Counter([next((name for name in _XML if (sniff := FORMATS[name].sniff) and sniff(tag)), "xml")])
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
    if is_td500(line):
        return "td500"
    if is_yolo(line):
        return "yolo"
    # Numbers between spaces can be anything, but only ICDAR-2013 puts a quoted text after four of them.
    spaced = BOX.fullmatch(line) if count == 0 else None
    if count == 4 or (spaced is not None and (spaced[5] or "").startswith('"')):
        return "box"
    return "point" if is_one_point(line) else None


def _foreign_lines(foreign: list[tuple[Path, int, str]]) -> AnnotationError:
    errors = [f"{path}, line {number}: {shorten(line)} is in no known format" for path, number, line in foreign]
    path, _, line = foreign[0]
    answer = answer_by_suffix(path)
    fix = "Set annotation_format to its format if it is one of these, or convert it"
    tried = f"The first of these lines {refusals(line)}. {fix}"
    return AnnotationError(
        f"{list_faults(errors)}\n{tried}" if answer is None else f"{path}: {answer}",
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
        f"{where}: several formats are mixed ({'; '.join(groups)}). Put each into its own folder, "
        "or set annotation_format to one that reads all files",
        value=list(files),
        path=where,
    )


def detect_json(root: Any, where: str) -> str:
    """The one format that sniffs out a JSON value; anything else is an error that asks for the format."""
    known = {name: format.sniff for name, format in FORMATS.items() if format.content == "json" and format.sniff}
    found = [name for name, sniff in known.items() if sniff(root)]
    if len(found) == 1:
        return found[0]
    held = shorten(list(root), 60) if isinstance(root, dict) else f"a {type(root).__name__}"
    foreign = name_of_json(root)
    if found:
        looks = f"this might be {' or '.join(found)}"
    else:
        looks = "the JSON is in no known format" if foreign is None else f"this looks like {foreign}, which is not read"
    raise AnnotationError(
        f'{where}: {looks}, found {held}, expected {{"images": {{...}}}}. Set annotation_format to its format if '
        f"that is one of {', '.join(known)}, or convert it (docs/data.md shows them)",
        value=found or foreign or held,
        path=where,
    )
