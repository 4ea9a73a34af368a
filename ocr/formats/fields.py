"""Fields of JSON annotations: present and of the right kind, or an error that names the place and the cure."""

from __future__ import annotations

from typing import Any, TypeVar

from ocr.errors import AnnotationError
from ocr.formats.lines import shorten

T = TypeVar("T")
TRANSCRIPTIONS = ("transcription", "utf8_string", "text", "caption", "transcript", "ocr")
"""Fields and attributes that hold the text of a word, most common first."""
_KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}


def field_in(what: str) -> str | None:
    """The field that a description names in quotes, if it names one."""
    return what.split('"')[-2] if '"' in what else None


def expect(value: Any, kind: type[T], place: str, what: str) -> T:
    """The value, which must be an object, a list or a text."""
    if not isinstance(value, kind):
        raise AnnotationError(
            f"{place}: {what} is {shorten(value, 60)}, not {_KINDS[kind]}: correct the file",
            setting=field_in(what),
            value=value,
        )
    return value


def text_or_none(value: Any) -> str | None:
    """A text, None if it is another kind of value."""
    return value if isinstance(value, str) else None


def is_true(value: Any) -> bool:
    """Whether a flag is set, in the ways that tools write it: true, 1, "true", "yes", {"yes": true} of a checkbox."""
    if isinstance(value, dict):
        return any(item is True for item in value.values())
    if isinstance(value, str):
        return value.strip().lower() in ("true", "yes", "1", "on")
    return value is True or (type(value) in (int, float) and value == 1)
