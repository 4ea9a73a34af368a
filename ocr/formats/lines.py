"""What the text formats share: lines of comma-separated numbers with a transcription at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ocr.errors import AnnotationError

# No page has coordinates of more than 15 digits, and Python refuses to convert very long ones.
NUMBER = r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_IS_NUMBER = re.compile(NUMBER).fullmatch


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line number and content of every line that is not blank."""
    for number, line in enumerate(text.split("\n"), start=1):
        if stripped := line.strip():
            yield number, stripped


def to_number(field: str) -> float:
    """An int stays an int, so that a file can be written back as it was."""
    field = field.strip()
    return int(field) if field.lstrip("+-").isdigit() else float(field)


def to_pairs(numbers: list[float]) -> list[list[float]]:
    """[x1, y1, x2, y2] as [[x1, y1], [x2, y2]]; a lone last number stays alone, for the doctor to find."""
    return [numbers[start : start + 2] for start in range(0, len(numbers), 2)]


def leading_numbers(line: str) -> tuple[list[str], str | None]:
    """The numbers a line begins with, and what follows them.

    >>> leading_numbers("1,2, 3,Total, 4")
    (['1', '2', ' 3'], 'Total, 4')
    """
    fields = line.split(",")
    count = next((at for at, field in enumerate(fields) if not _IS_NUMBER(field.strip())), len(fields))
    return fields[:count], ",".join(fields[count:]) if count < len(fields) else None


def split_polygon(line: str) -> tuple[list[float], str | None]:
    """Coordinates and transcription of `x1,y1,...,xn,yn,text`; a number without a partner is the text.

    >>> split_polygon("0,0,9,0,9,5,2024")
    ([0, 0, 9, 0, 9, 5], '2024')
    """
    fields, text = leading_numbers(line)
    if len(fields) % 2:
        last = fields.pop().strip()
        text = last if text is None else f"{last},{text}"
    return [to_number(field) for field in fields], text if text is None else text.strip()


def unreadable(where: str, number: int, line: str, form: str, expected: str) -> AnnotationError:
    """The error for a line that does not match its format."""
    return AnnotationError(
        f"{where}, line {number}: {shorten(line)} is not a line of {form}, which reads {expected}: "
        "correct the line, or set annotation_format (--format) to the format of the file"
    )


def shorten(value: object, limit: int = 90) -> str:
    """A value, short enough for a message."""
    written = repr(value)
    return written if len(written) <= limit else written[: limit - 3] + "..."
