"""Datasets of curved text: Total-Text in its own notation or as lines, and the three forms of SCUT-CTW1500.

Total-Text has a file per image, as `x: [[...]], y: [[...]], ornt: [...], transcriptions: [...]` or `x1,y1,...,text`;
CTW1500 the XML of its training set, the text of its test set, and the 32 numbers of its first release.
"""

from __future__ import annotations

import ast
import re
from xml.etree import ElementTree

from ocr.errors import AnnotationError
from ocr.formats.annotation import Word
from ocr.formats.foreign import name_of_xml
from ocr.formats.lines import (
    collected,
    judge_numbers,
    leading_numbers,
    parse_lines,
    raise_collected,
    shorten,
    split_polygon,
    to_number,
    to_pairs,
    unreadable,
)
from ocr.formats.xml_tree import looks_like_xml, parse_xml

TOTAL_TEXT_IGNORED = ("#", "###")
ORIENTATIONS = {"c": "curved", "h": "horizontal", "m": "multi-oriented"}
RECORD_START = re.compile(r"^[ \t]*x:", re.MULTILINE)
_RECORD = re.compile(
    r"\s*x:\s*\[\[(.*?)\]\],\s*y:\s*\[\[(.*?)\]\],\s*ornt:\s*(\[.*?\]),\s*transcriptions:\s*(\[.*\])\s*", re.DOTALL
)
_FORM = "x: [[1 2 3]], y: [[4 5 6]], ornt: [u'c'], transcriptions: [u'text']"


def parse_total_text(text: str, where: str) -> tuple[Word, ...]:
    """Words of either notation.

    >>> line = "x: [[153 161 179]], y: [[347 323 305]], ornt: [u'c'], transcriptions: [u'the']"
    >>> parse_total_text(line, "poly_gt_img1.txt")[0].points
    [[153, 347], [161, 323], [179, 305]]
    """
    return _parse_records(text, where) if RECORD_START.search(text) else _total_text_lines(text, where)


def _parse_records(text: str, where: str) -> tuple[Word, ...]:
    # Long coordinate lists wrap over several lines: a record ends when the next one starts.
    starts = [match.start() for match in RECORD_START.finditer(text)]
    if text[: starts[0]].strip():
        raise unreadable(where, 1, text[: starts[0]].strip(), "Total-Text", _FORM)
    ends = [*starts[1:], len(text)]
    words, errors = [], list[AnnotationError]()
    for start, end in zip(starts, ends, strict=True):
        with collected(errors):
            words.append(_parse_record(text[start:end], where, text.count("\n", 0, start) + 1))
    raise_collected(errors)
    return tuple(words)


def _parse_record(record: str, where: str, line: int) -> Word:
    match = _RECORD.fullmatch(record)
    if match is None:
        raise unreadable(where, line, record.strip(), "Total-Text", _FORM)
    try:
        xs, ys = ([to_number(field) for field in axis.replace(",", " ").split()] for axis in match.groups()[:2])
        orientation, transcription = (",".join(ast.literal_eval(field)) for field in match.groups()[2:])
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise unreadable(where, line, record.strip(), "Total-Text", _FORM) from error
    if len(xs) != len(ys):
        raise AnnotationError(
            f"{where}, line {line}: {len(xs)} x for {len(ys)} y in {shorten(record.strip())}. Correct the record",
            value=record.strip(),
        )
    ignore = transcription in ("", *TOTAL_TEXT_IGNORED) or orientation == "#"
    points = [[x, y] for x, y in zip(xs, ys, strict=True)]
    return Word(f"{line:04d}", points, transcription or None, ignore, orientation=ORIENTATIONS.get(orientation))


def _total_text_lines(text: str, where: str) -> tuple[Word, ...]:
    def parse_line(number: int, line: str) -> Word:
        numbers, transcription = split_polygon(line)
        # Straight words are four corners, and a text such as 1,000 is not a fifth one.
        if len(numbers) >= 10 and judge_numbers(numbers) == "text":
            numbers, transcription = numbers[:8], line.split(",", 8)[8].strip()
        if len(numbers) < 6:
            raise unreadable(where, number, line, "Total-Text", f"{_FORM} or x1,y1,x2,y2,x3,y3,...,text")
        return Word(f"{number:04d}", to_pairs(numbers), transcription, transcription in TOTAL_TEXT_IGNORED)

    return parse_lines(text, where, parse_line)


_CTW1500_FORM = "x1,y1,...,x14,y14,####text or 32 numbers"


def parse_ctw1500(text: str, where: str) -> tuple[Word, ...]:
    """Words of any of the three forms.

    >>> parse_ctw1500("0,0,9,0,9,5,####Joe, Inc", "0001001.txt")[0].text
    'Joe, Inc'
    """
    return _ctw1500_xml(text, where) if looks_like_xml(text) else _ctw1500_lines(text, where)


def _ctw1500_lines(text: str, where: str) -> tuple[Word, ...]:
    def parse_line(number: int, line: str) -> Word:
        numbers, transcription = split_polygon(line)
        if len(numbers) < 6:
            raise unreadable(where, number, line, "CTW1500", _CTW1500_FORM)
        if len(numbers) == 32 and transcription is None:
            numbers = _from_offsets(numbers)
        return Word(f"{number:04d}", to_pairs(numbers), transcription, transcription == "###")

    return parse_lines(text, where, parse_line)


def _from_offsets(numbers: list[float]) -> list[float]:
    """The first release writes a box, then 14 points counted from its top left corner."""
    return [offset + numbers[at % 2] for at, offset in enumerate(numbers[4:])]


def _ctw1500_xml(text: str, where: str) -> tuple[Word, ...]:
    root = parse_xml(text, where)
    images = list(root.iter("image"))
    boxes = list(images[0]) if len(images) == 1 else []
    # A page without text has no box; its <image> is then known by the attribute that only CTW1500 has.
    is_ctw1500 = bool(boxes) or (len(images) == 1 and "file" in images[0].attrib)
    if not is_ctw1500 or not all(box.tag == "box" and box.find("segs") is not None for box in boxes):
        foreign = name_of_xml(root)
        looks = "this XML is not of CTW1500" if foreign is None else f"this looks like {foreign}, not like CTW1500"
        raise AnnotationError(
            f"{where}: {looks}, expected one <image> with a <box> and <segs> per word. "
            "Set annotation_format to its format, or convert it",
            value=foreign or root.tag,
        )
    return tuple([_parse_box(box, f"{at:04d}", where) for at, box in enumerate(boxes, start=1)])


def _parse_box(box: ElementTree.Element, key: str, where: str) -> Word:
    outline = (box.findtext("segs") or "").strip().rstrip(",")
    fields, rest = leading_numbers(outline)
    if rest is not None:
        raise AnnotationError(
            f"{where}: word {key}: <segs> is {shorten(outline)}, expected x1,y1,...,x14,y14. "
            "Correct the file, or set annotation_format to its format",
            setting="segs",
            value=outline,
        )
    transcription = box.findtext("label")
    points = to_pairs([to_number(field) for field in fields])
    return Word(key, points, transcription, transcription == "###")
