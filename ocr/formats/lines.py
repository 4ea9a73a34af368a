"""Lines of comma-separated numbers with a transcription at the end, and the collecting of errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ocr.errors import AnnotationError, GlyphFeedError
from ocr.formats.annotation import Word

# No page has coordinates of more than 15 digits, and Python refuses to convert very long ones.
NUMBER = r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
MARK = "####"
"""CTW1500 and AdelaiDet write it before every text, also before the `###` of an ignored one."""
MAX_LISTED = 50
_is_number = re.compile(NUMBER).fullmatch
_ONE_POINT = re.compile(rf"({NUMBER})\s*,\s*({NUMBER})\s*(?:,(?!\s*{NUMBER}\s*$)([^,]*))?")


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line number and content of every line that is not blank."""
    for number, line in enumerate(text.split("\n"), start=1):
        if stripped := line.strip():
            yield number, stripped


def parse_lines(text: str, where: str, parse_line: Callable[[int, str], Word]) -> tuple[Word, ...]:
    """The words of all lines, keyed by line number; one error lists all lines that cannot be read.

    A line of one point, as public label files have it, becomes a word of one point, which `read_annotations` skips.
    """
    words, errors = [], list[AnnotationError]()
    for number, line in numbered_lines(text):
        try:
            words.append(parse_line(number, line))
        except AnnotationError as error:
            if point := _ONE_POINT.fullmatch(line):
                words.append(Word(f"{number:04d}", [[to_number(point[1]), to_number(point[2])]], point[3]))
            else:
                errors.append(error)
    if errors:
        raise AnnotationError("\n".join(map(str, errors)), value=errors[0].value)
    return tuple(words)


def is_one_point(line: str) -> bool:
    """Whether a line has a single point, `x,y,text`: nothing that could be drawn or learnt."""
    return _ONE_POINT.fullmatch(line) is not None


def to_number(field: str) -> float:
    """An int stays an int, so that a file can be written back as it was."""
    field = field.strip()
    return int(field) if field.lstrip("+-").isdigit() else float(field)


def to_pairs(numbers: list[float]) -> list[list[float]]:
    """[x1, y1, x2, y2] as [[x1, y1], [x2, y2]]; a single last number stays alone, for the doctor to find."""
    return [numbers[start : start + 2] for start in range(0, len(numbers), 2)]


def leading_numbers(line: str, separator: str | None = ",") -> tuple[list[str], str | None]:
    """The numbers at the start of a line, and what follows them; without a separator, numbers between spaces.

    >>> leading_numbers("1,2, 3,Total, 4")
    (['1', '2', ' 3'], 'Total, 4')
    """
    fields = line.split(separator)
    count = next((at for at, field in enumerate(fields) if not _is_number(field.strip())), len(fields))
    return fields[:count], (separator or " ").join(fields[count:]) if count < len(fields) else None


def split_polygon(line: str) -> tuple[list[float], str | None]:
    """Coordinates and transcription of `x1,y1,...,xn,yn,text`; a number without a partner is the text.

    >>> split_polygon("0,0,9,0,9,5,2024")
    ([0, 0, 9, 0, 9, 5], '2024')
    """
    fields, text = leading_numbers(line)
    if len(fields) % 2:
        last = fields.pop().strip()
        text = last if text is None else f"{last},{text}"
    return [to_number(field) for field in fields], text if text is None else text.strip().removeprefix(MARK)


def unreadable(where: str, number: int, line: str, form: str, expected: str) -> AnnotationError:
    """The error of a line that is not what its format promises."""
    return AnnotationError(
        f"{where}, line {number}: {shorten(line)} is not a line of {form}, expected {expected}. "
        "Correct the line, or set annotation_format to the format of the file",
        value=line,
    )


@contextmanager
def collected(errors: list[AnnotationError], path: Path | None = None) -> Iterator[None]:
    """Continue after an error, so that all of a file or folder are reported at once; `path` is the file it is in."""
    try:
        with in_file(path):
            yield
    except AnnotationError as error:
        errors.append(error)


@contextmanager
def in_file(path: Path | None) -> Iterator[None]:
    """An error that names no file is about this one."""
    try:
        yield
    except GlyphFeedError as error:
        if error.path is None and path is not None:
            error.path = str(path)
        raise


def raise_collected(errors: Sequence[AnnotationError]) -> None:
    """One error with all that was collected, if anything was."""
    if errors:
        raise merged(errors)


def merged(errors: Sequence[AnnotationError]) -> AnnotationError:
    """One error with the messages of all, and the fields of the first."""
    first, message = errors[0], list_faults([str(error) for error in errors])
    return AnnotationError(message, setting=first.setting, value=first.value, path=first.path)


def list_faults(errors: Sequence[str]) -> str:
    """All errors as one message, one line each; of very many, the first and how many more there are."""
    lines = [line for error in errors for line in error.split("\n")]
    more = [f"... and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return "\n".join(lines[:MAX_LISTED] + more)


def shorten(value: object, limit: int = 90) -> str:
    """A value as a message shows it."""
    try:
        written = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} of too many levels"
    return written if len(written) <= limit else written[: limit - 3] + "..."


MAX_NUMBERS = 20
"""From here on they are points: curved outlines have 10 points and more, and no text begins with 12 numbers."""
# Measured on generated shapes: of arcs of 5 to 14 points, drawn along the top and back, 0.05 % or fewer are below; of
# quads with corners off by 10 % of their height, none is above (at most 0.135). An outline of five points that begins
# with four corners is below too, and is recognised by its neighbours only.
_MAX_SKEW = 0.15


def judge_numbers(numbers: list[float]) -> Literal["points", "text", "either"]:
    """What the numbers after the first eight of a line are.

    The corners of a word are nearly a parallelogram, and the first four points of a longer outline are not. Behind
    corners, numbers are a text, unless they return to the first corner; if they are points inside the corners' own
    box, the line alone does not show which.

    >>> judge_numbers([1, 2, 9, 2, 9, 5, 1, 5, 10, 50]), judge_numbers([0, 0, 5, 1, 9, 0, 9, 5, 5, 6, 0, 5])
    ('text', 'points')
    """
    if len(numbers) < 10 or len(numbers) >= MAX_NUMBERS:
        return "text" if len(numbers) < 10 else "points"
    a, b, c, d = corners = to_pairs(numbers[:8])
    further = to_pairs(numbers[8 : len(numbers) // 2 * 2])
    skew = math.hypot(a[0] - b[0] + c[0] - d[0], a[1] - b[1] + c[1] - d[1])
    perimeter = math.dist(a, b) + math.dist(b, c) + math.dist(c, d) + math.dist(d, a)
    if skew > _MAX_SKEW * perimeter or further[-1] == a:
        return "points"
    (left, right), (top, bottom) = ((min(axis), max(axis)) for axis in zip(*corners, strict=True))
    return "either" if all(left <= x <= right and top <= y <= bottom for x, y in further) else "text"
