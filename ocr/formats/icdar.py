"""Text files of ICDAR and MSRA-TD500, one per image, one line per word: boxes, four corners, turned boxes."""

from __future__ import annotations

import re
from dataclasses import replace

from ocr.errors import AnnotationError
from ocr.formats.annotation import Word
from ocr.formats.lines import (
    MARK,
    NUMBER,
    judge_numbers,
    leading_numbers,
    parse_lines,
    shorten,
    to_number,
    to_pairs,
    unreadable,
)
from ocr.formats.values import about_centre, numbers
from ocr.formats.yolo import is_yolo

# The training set of 2013 separates by spaces, its test set by commas and spaces.
BOX = re.compile(r"[,\s]+".join([f"({NUMBER})"] * 4) + r"(?:[,\s]+(.*))?")
QUAD = re.compile(r"\s*,\s*".join([f"({NUMBER})"] * 8) + r"\s*(?:,(.*))?")

# ICDAR-2017 and 2019 MLT write the script between the corners and the text, RCTW-17 whether the text is difficult.
SCRIPT = re.compile(r"(Arabic|Bangla|Chinese|Hindi|Japanese|Korean|Latin|Mixed|None|Symbols),(.*)")
DIFFICULT = re.compile(r'([01]),\s*"(.*)"')


def parse_icdar2013(text: str, where: str) -> tuple[Word, ...]:
    """Words of `left, top, right, bottom, "text"`.

    >>> parse_icdar2013('38, 43, 920, 215, "Tiredness"', "gt_img_1.txt")[0].points
    [[38, 43], [920, 43], [920, 215], [38, 215]]
    """

    def parse_line(number: int, line: str) -> Word:
        match = BOX.fullmatch(line)
        if match is None:
            raise unreadable(where, number, line, "ICDAR-2013", 'left, top, right, bottom, "text"')
        _refuse_fifth_number(line, match[5] or "", f"{where}, line {number}")
        left, top, right, bottom = map(to_number, match.groups()[:4])
        transcription = None if match[5] is None else _unquote(match[5]).removeprefix(MARK)
        corners: list[list[float]] = [[left, top], [right, top], [right, bottom], [left, bottom]]
        return Word(f"{number:04d}", corners, transcription, transcription == "###")

    return parse_lines(text, where, parse_line)


def parse_icdar2015(text: str, where: str) -> tuple[Word, ...]:
    """Words of `x1,y1,x2,y2,x3,y3,x4,y4,text`; the text can contain commas. Reads MLT and RCTW-17 too.

    >>> parse_icdar2015("1,2,9,2,9,5,1,5,Tel, Fax", "gt_img_1.txt")[0].text
    'Tel, Fax'
    """

    def parse_line(number: int, line: str) -> Word:
        match = QUAD.fullmatch(line)
        if match is None:
            raise unreadable(where, number, line, "ICDAR-2015", "x1,y1,x2,y2,x3,y3,x4,y4,text")
        transcription = None if match[9] is None else match[9].strip().removeprefix(MARK)
        if transcription and transcription[0] in "+-.0123456789":
            _refuse_polygon(line, f"{where}, line {number}")
        corners = to_pairs(list(map(to_number, match.groups()[:8])))
        return Word(f"{number:04d}", corners, transcription, transcription == "###")

    return _split_prefixes(parse_lines(text, where, parse_line))


def _split_prefixes(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Separate the script of MLT and the flag of RCTW-17 from the texts.

    A text can begin like one of them, but not every text of a page.
    """
    scripts = [SCRIPT.fullmatch(word.text or "") for word in words]
    if all(scripts):
        return tuple(
            replace(word, text=script[2].strip(), ignore=script[2].strip() == "###", language=script[1])
            for word, script in zip(words, scripts, strict=True)
            if script
        )
    flags = [DIFFICULT.fullmatch(word.text or "") for word in words]
    if all(flags):
        return tuple(
            replace(word, text=flag[2], ignore=flag[1] == "1" or flag[2] == "###")
            for word, flag in zip(words, flags, strict=True)
            if flag
        )
    return words


def _refuse_polygon(line: str, place: str) -> None:
    numbers = [to_number(field) for field in leading_numbers(line)[0]]
    if judge_numbers(numbers) == "points":
        raise AnnotationError(
            f"{place}: {shorten(line)} has {len(numbers)} numbers, expected eight. "
            "Set annotation_format to total_text, or to ctw1500 if #### is before the texts",
            value=line,
        )


def _refuse_fifth_number(line: str, text: str, place: str) -> None:
    by_commas = leading_numbers(line)[0]
    separator = "," if len(by_commas) >= 4 else None
    if not leading_numbers(text, separator)[0]:
        return
    count = 4 + len(leading_numbers(text, separator)[0])
    if is_td500(line):
        fix = "It looks like MSRA-TD500. Set annotation_format to td500"
    elif is_yolo(line):
        fix = "It looks like YOLO. Set annotation_format to yolo"
    elif count >= 8:
        fix = "Set annotation_format to icdar2015"
    else:
        fix = "Put the text in quotes if it is a number, or set annotation_format to the file's format"
    raise AnnotationError(f"{place}: {shorten(line)} begins with {count} numbers, expected four. {fix}", value=line)


def _unquote(field: str) -> str:
    """Only the outer pair of quotes belongs to the format; those inside are text."""
    return field[1:-1] if len(field) >= 2 and field[0] == field[-1] == '"' else field


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
