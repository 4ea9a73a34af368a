"""The content of an annotation file, and which format it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.detect import detect, detect_json
from ocr.formats.document import parse_json
from ocr.formats.foreign import answer_by_suffix
from ocr.formats.paddle import is_paddle
from ocr.formats.registry import FORMATS
from ocr.formats.wildreceipt import is_wildreceipt
from ocr.formats.xml_tree import parse_xml


def read_text(path: Path) -> str:
    """The text of a file, which must be UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        answer = answer_by_suffix(path)
        raise AnnotationError(
            f"{path}: {answer or f'not UTF-8 at byte {error.start}: save the file as UTF-8'}",
            value=path.suffix if answer else error.start,
            path=path,
        ) from error
    except OSError as error:
        raise AnnotationError(
            f"{path}: cannot be read ({error.strerror}): set annotation_path (--annotation-path) to a file",
            setting="annotation_path",
            path=path,
        ) from error


def parse_content(format: str, text: str, where: str) -> Any:
    """What the parser of a format is given: the value of JSON, the first element of XML, None for other text."""
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
    if is_paddle(text):
        return "paddle", None
    if is_wildreceipt(text):
        return "wildreceipt", None
    if text.lstrip()[0] in "{[":
        root = parse_json(text, where)
        return detect_json(root, where), root
    format = detect(where, {path: text})
    return format, parse_content(format, text, where)
