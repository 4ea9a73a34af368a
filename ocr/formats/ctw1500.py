"""SCUT-CTW1500: the XML of its training set, the text of its test set, and the 32 numbers of its first release."""

from __future__ import annotations

from xml.etree import ElementTree

from ocr.errors import AnnotationError
from ocr.formats.annotation import Word
from ocr.formats.foreign import name_of_xml
from ocr.formats.lines import leading_numbers, parse_lines, shorten, split_polygon, to_number, to_pairs, unreadable
from ocr.formats.xml_tree import looks_like_xml, parse_xml

IGNORED = "###"
_FORM = "x1,y1,...,x14,y14,####text or 32 numbers"


def parse_ctw1500(text: str, where: str) -> tuple[Word, ...]:
    """Words of any of the three forms.

    >>> parse_ctw1500("0,0,9,0,9,5,####Joe, Inc", "0001001.txt")[0].text
    'Joe, Inc'
    """
    return _parse_xml(text, where) if looks_like_xml(text) else _parse_lines(text, where)


def _parse_lines(text: str, where: str) -> tuple[Word, ...]:
    def parse_line(number: int, line: str) -> Word:
        numbers, transcription = split_polygon(line)
        if len(numbers) < 6:
            raise unreadable(where, number, line, "CTW1500", _FORM)
        if len(numbers) == 32 and transcription is None:
            numbers = _from_offsets(numbers)
        return Word(f"{number:04d}", to_pairs(numbers), transcription, transcription == IGNORED)

    return parse_lines(text, where, parse_line)


def _from_offsets(numbers: list[float]) -> list[float]:
    """The first release writes a box, then 14 points counted from its top left corner."""
    return [offset + numbers[at % 2] for at, offset in enumerate(numbers[4:])]


def _parse_xml(text: str, where: str) -> tuple[Word, ...]:
    root = parse_xml(text, where)
    images = list(root.iter("image"))
    boxes = list(images[0]) if len(images) == 1 else []
    # A page without text has no box; its <image> is then known by the attribute that only CTW1500 has.
    is_ctw1500 = bool(boxes) or (len(images) == 1 and "file" in images[0].attrib)
    if not is_ctw1500 or not all(box.tag == "box" and box.find("segs") is not None for box in boxes):
        foreign = name_of_xml(root)
        looks = "this XML is not of CTW1500" if foreign is None else f"this looks like {foreign}, not like CTW1500"
        raise AnnotationError(
            f"{where}: {looks} (CTW1500 has one <image> with a <box> and <segs> per word): "
            "set annotation_format (--format) to its format, or convert it",
            value=foreign or root.tag,
        )
    return tuple([_parse_box(box, f"{at:04d}", where) for at, box in enumerate(boxes, start=1)])


def _parse_box(box: ElementTree.Element, key: str, where: str) -> Word:
    outline = (box.findtext("segs") or "").strip().rstrip(",")
    fields, rest = leading_numbers(outline)
    if rest is not None:
        raise AnnotationError(
            f"{where}: word {key}: <segs> is {shorten(outline)}, not x1,y1,...,x14,y14: "
            "correct the file, or set annotation_format (--format) to its format",
            setting="segs",
            value=outline,
        )
    transcription = box.findtext("label")
    points = to_pairs([to_number(field) for field in fields])
    return Word(key, points, transcription, transcription == IGNORED)
