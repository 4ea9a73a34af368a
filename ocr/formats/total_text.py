"""Total-Text: one file per image, in the dataset's own notation or as plain `x1,y1,...,xn,yn,text` lines."""

from __future__ import annotations

import ast
import re

from ocr.errors import AnnotationError
from ocr.formats.annotation import Word
from ocr.formats.lines import (
    collected,
    parse_lines,
    raise_faults,
    shorten,
    split_polygon,
    to_number,
    to_pairs,
    unreadable,
)
from ocr.formats.outline import judge_numbers

IGNORED = ("#", "###")
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
    return _parse_records(text, where) if RECORD_START.search(text) else _parse_lines(text, where)


def _parse_records(text: str, where: str) -> tuple[Word, ...]:
    # Long coordinate lists wrap over several lines: a record ends when the next one starts.
    starts = [match.start() for match in RECORD_START.finditer(text)]
    if text[: starts[0]].strip():
        raise unreadable(where, 1, text[: starts[0]].strip(), "Total-Text", _FORM)
    ends = [*starts[1:], len(text)]
    words, faults = [], list[AnnotationError]()
    for start, end in zip(starts, ends, strict=True):
        with collected(faults):
            words.append(_parse_record(text[start:end], where, text.count("\n", 0, start) + 1))
    raise_faults(faults)
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
            f"{where}, line {line}: {len(xs)} x for {len(ys)} y in {shorten(record.strip())}: correct the record",
            value=record.strip(),
        )
    ignore = transcription in ("", *IGNORED) or orientation == "#"
    points = [[x, y] for x, y in zip(xs, ys, strict=True)]
    return Word(f"{line:04d}", points, transcription or None, ignore, orientation=ORIENTATIONS.get(orientation))


def _parse_lines(text: str, where: str) -> tuple[Word, ...]:
    def parse_line(number: int, line: str) -> Word:
        numbers, transcription = split_polygon(line)
        # Straight words are four corners, and a text such as 1,000 is not a fifth one.
        if len(numbers) >= 10 and judge_numbers(numbers) == "text":
            numbers, transcription = numbers[:8], line.split(",", 8)[8].strip()
        if len(numbers) < 6:
            raise unreadable(where, number, line, "Total-Text", f"{_FORM} or x1,y1,x2,y2,x3,y3,...,text")
        return Word(f"{number:04d}", to_pairs(numbers), transcription, transcription in IGNORED)

    return parse_lines(text, where, parse_line)
