"""MSRA-TD500 and HUST-TR400: a text file per image, `index difficult x y width height angle`, the angle in radians."""

from __future__ import annotations

from ocr.formats.annotation import Word
from ocr.formats.lines import leading_numbers, parse_lines, unreadable
from ocr.formats.shapes import about_centre, numbers


def is_td500(line: str) -> bool:
    """Whether a line is one of MSRA-TD500: seven numbers between spaces, the second a flag, the last an angle.

    >>> is_td500("0 0 523 467 315 40 0.1"), is_td500("0 0.48 0.63 0.69 0.71 0.2 0.3")
    (True, False)
    """
    fields, rest = leading_numbers(line, separator=None)
    if rest is not None or len(fields) != 7 or fields[1] not in ("0", "1") or not fields[0].isdecimal():
        return False
    *_, width, height, angle = map(float, fields)
    # The corners of YOLO are shares of the page.
    return abs(angle) < 3.2 and max(width, height) > 1


def parse_td500(text: str, where: str) -> tuple[Word, ...]:
    """Words of `index difficult x y width height angle`: a box that is turned about its middle, clockwise.

    >>> parse_td500("0 1 10 20 8 4 0", "IMG_0001.gt")[0].points
    [[10.0, 20.0], [18.0, 20.0], [18.0, 24.0], [10.0, 24.0]]
    """

    def parse_line(number: int, line: str) -> Word:
        if not is_td500(line):
            raise unreadable(where, number, line, "MSRA-TD500", "index difficult x y width height angle")
        fields = leading_numbers(line, separator=None)[0]
        left, top, width, height, angle = numbers(fields[2:], f"{where}, line {number}", "a number of the box")
        box = about_centre(left + width / 2, top + height / 2, width, height, angle)
        return Word(f"{number:04d}", box.corners(), None, fields[1] == "1")

    return parse_lines(text, where, parse_line)
