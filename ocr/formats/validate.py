"""The one place where words are judged fit for training, whatever source they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page
from ocr.formats.lines import merged, shorten
from ocr.geometry.polygons import UNITS, Polygons

_NUMBERS = frozenset((int, float))
_SEQUENCES = frozenset((list, tuple))
_TEXTS = frozenset((str, type(None)))
_FLAGS = frozenset((bool,))
# No page is a million pixels wide; beyond that, arithmetic on whole pixels would overflow.
_LARGEST = 1e6


def to_polygons(page: Page, where: str) -> Polygons:
    """The words of a page as packed polygons; `where` names the page in the error about a word that is none."""
    words = page.words
    return pack_words(
        [word.points for word in words],
        [word.ignore for word in words],
        [word.text for word in words],
        lambda index: f"{where}: word {words[index].key}",
        [0 if word.unit is None else UNITS.index(word.unit) + 1 for word in words],
    )


def pack_words(
    outlines: Sequence[Any],
    ignore: Sequence[Any],
    texts: Sequence[Any],
    name: Callable[[int], str],
    units: Sequence[int] = (),
) -> Polygons:
    """Points, flags and texts of words, from any source, as packed polygons.

    AnnotationError if one cannot be used: it lists all such words, each by its `name`.
    """
    if not outlines:
        return Polygons.pack([])
    # All words are checked together; only a page that fails is checked word by word, to name the bad one.
    try:
        polygons = [_unnest(points) for points in outlines]
        counts = list(map(len, polygons))
        points = list(chain.from_iterable(polygons))
        numbers = list(chain.from_iterable(points))
        sound = (
            min(counts) >= 3
            and set(map(len, points)) == {2}
            and _SEQUENCES.issuperset(map(type, points))
            and _NUMBERS.issuperset(map(type, numbers))
            and _TEXTS.issuperset(map(type, texts))
            and _FLAGS.issuperset(map(type, ignore))
        )
        values = np.array(numbers if sound else [np.nan], dtype=np.float64)
        sound = bool(np.abs(values).max() <= _LARGEST)
    except (TypeError, OverflowError, KeyError):
        sound = False
    if not sound:
        raise _culprit(outlines, ignore, texts, name)
    offsets = np.zeros(len(outlines) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    flags = np.array(ignore, dtype=np.bool_)
    vertices = values.reshape(-1, 2).astype(np.float32)
    return Polygons(vertices, offsets, flags, tuple(texts), np.array(units, dtype=np.uint8))


def points_error(points: Any) -> str | None:
    """What is wrong with the points of a word, in a few words; None if they form a polygon.

    >>> points_error([[0, 0], [9, 0]])
    'has 2 points, expected at least 3'
    """
    if type(points) not in _SEQUENCES:
        return "is not a list of points"
    points = _unnest(points)
    for point in points:
        if type(point) not in _SEQUENCES or len(point) != 2:
            return f"has {shorten(point, 40)} for a point, which is not [x, y]"
        for number in point:
            if type(number) not in _NUMBERS:
                return f"has {shorten(number, 40)} for a coordinate, which is not a number"
            if not abs(number) <= _LARGEST:
                problem = "too large to be a pixel" if abs(number) < np.inf else "not finite"
                return f"has {shorten(number, 40)} for a coordinate, which is {problem}"
    return None if len(points) >= 3 else f"has {len(points)} points, expected at least 3"


def _unnest(points: Any) -> Any:
    """Points can be nested once more, [[[x, y], ...]], as OpenCV likes them."""
    if len(points) == 1 and type(points[0]) in _SEQUENCES and points[0] and type(points[0][0]) in _SEQUENCES:
        return points[0]
    return points


def _culprit(
    outlines: Sequence[Any], ignore: Sequence[Any], texts: Sequence[Any], name: Callable[[int], str]
) -> AnnotationError:
    errors: list[AnnotationError] = []
    for index, (points, flag, text) in enumerate(zip(outlines, ignore, texts, strict=True)):
        invalid = points_error(points)
        if invalid is not None:
            problem = f"points {shorten(points)} {invalid}. Write a repaired copy with `glyphfeed doctor DATA --fix`"
            errors.append(AnnotationError(f"{name(index)}: {problem}", setting="points", value=points))
        elif type(text) not in _TEXTS:
            problem = f"transcription {shorten(text)} is not text. Put it in quotes, or leave it out"
            errors.append(AnnotationError(f"{name(index)}: {problem}", setting="transcription", value=text))
        elif type(flag) not in _FLAGS:
            problem = f"ignore is {shorten(flag)}. Write true or false"
            errors.append(AnnotationError(f"{name(index)}: {problem}", setting="ignore", value=flag))
    return merged(errors)
