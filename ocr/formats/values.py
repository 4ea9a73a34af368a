"""Values of annotations: fields of the right kind or an error that names the place; boxes as outlines and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

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
            f"{place}: {what} is {shorten(value, 60)}, expected {_KINDS[kind]}. Correct the file",
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


_DECIMALS = 4
"""Of coordinates that were computed: percents and angles give 94.00000000000001 for 94."""
_LARGEST = 1e9
TOLERANCE = 0.02
"""How far, in pixels, a corner of a rectangle can be off: predictions have two decimals."""


class RotatedBox(NamedTuple):
    """A rectangle by its first corner, its sides, and the angle by which it is turned about that corner."""

    x: float
    y: float
    width: float
    height: float
    radians: float

    @property
    def centre(self) -> tuple[float, float]:
        """The point that stays where it is when the box is turned about its middle."""
        cosine, sine = math.cos(self.radians), math.sin(self.radians)
        return (
            self.x + (self.width * cosine - self.height * sine) / 2,
            self.y + (self.width * sine + self.height * cosine) / 2,
        )

    def corners(self) -> list[list[float]]:
        """Its outline, from the first corner along the width.

        >>> RotatedBox(10, 10, 4, 2, math.pi / 2).corners()
        [[10.0, 10.0], [10.0, 14.0], [8.0, 14.0], [8.0, 10.0]]
        """
        cosine, sine = math.cos(self.radians), math.sin(self.radians)
        along, across = (self.width * cosine, self.width * sine), (-self.height * sine, self.height * cosine)
        return [
            rounded((self.x + a * along[0] + b * across[0], self.y + a * along[1] + b * across[1]))
            for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))
        ]


def about_centre(x: float, y: float, width: float, height: float, radians: float) -> RotatedBox:
    """A box given by its middle, its sides and the angle by which it is turned about the middle."""
    cosine, sine = math.cos(radians), math.sin(radians)
    left, top = x - (width * cosine - height * sine) / 2, y - (width * sine + height * cosine) / 2
    return RotatedBox(left, top, width, height, radians)


def as_rotated_box(points: Sequence[Sequence[float]]) -> RotatedBox | None:
    """The rectangle that an outline is, its first point being the first corner; None if it is not one.

    >>> as_rotated_box([[1, 2], [9, 2], [9, 5], [1, 5]])
    RotatedBox(x=1, y=2, width=8.0, height=3.0, radians=0.0)
    """
    if len(points) != 4:
        return None
    (x, y), (x1, y1), (x2, y2), (x3, y3) = points
    along, across = (x1 - x, y1 - y), (x3 - x, y3 - y)
    width, height = math.hypot(*along), math.hypot(*across)
    if min(width, height) <= 0 or along[0] * across[1] - along[1] * across[0] <= 0:
        return None
    skew = abs(along[0] * across[0] + along[1] * across[1]) / min(width, height)
    gap = math.hypot(x1 + across[0] - x2, y1 + across[1] - y2)
    return RotatedBox(x, y, width, height, math.atan2(along[1], along[0])) if max(skew, gap) <= TOLERANCE else None


def box_corners(left: float, top: float, right: float, bottom: float) -> list[list[float]]:
    """The outline of an upright box, clockwise from its left top corner."""
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


def bounds(points: Iterable[Sequence[float]]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of an outline."""
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def area_of(points: Sequence[Sequence[float]]) -> float:
    """The area of an outline that does not cross itself."""
    following = [*points[1:], points[0]]
    doubled = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, following, strict=True))
    return round(abs(doubled) / 2, _DECIMALS)


def rounded(point: Sequence[float]) -> list[float]:
    """A computed point without the noise of its last digits."""
    return [round(point[0], _DECIMALS), round(point[1], _DECIMALS)]


def written(number: float) -> str:
    """A coordinate or an angle as text: a whole one without a point, others without the noise of their last digits.

    >>> written(94.0), written(1 / 3)
    ('94', '0.333333')
    """
    return f"{number:.6f}".rstrip("0").rstrip(".")


def numbers(values: Iterable[Any], place: str, what: str) -> list[float]:
    """Values that must be finite numbers, or text of such; the error names the place and what they are."""
    found: list[float] = []
    for value in values:
        number: Any = value
        if isinstance(value, str):
            with suppress(ValueError):
                number = float(value)
        if type(number) not in (int, float) or not abs(number) <= _LARGEST:
            raise AnnotationError(
                f"{place}: {what} is {shorten(value)}, expected a number of pixels. Correct it",
                setting=field_in(what),
                value=value,
            )
        found.append(number)
    return found
