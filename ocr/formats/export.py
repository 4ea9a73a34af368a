"""Pages on their way into the file of another format, and what its writer has to know besides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.native import to_json
from ocr.formats.validate import points_error
from ocr.formats.values import TOLERANCE, RotatedBox, as_rotated_box

LOCAL_FILES = "/data/local-files/?d="
"""How Label Studio names the files below LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT."""


@dataclass(frozen=True, slots=True)
class Export:
    """All pages, with the scores of their words if they are predictions."""

    pages: Mapping[str, Page]
    target: Path
    scores: Mapping[str, Sequence[float]] | None
    model_version: str
    image_path: Path | None
    image_prefix: str
    notes: list[str]

    def words(self, name: str, page: Page) -> Iterator[tuple[Word, float | None]]:
        """The words of a page with their scores; one whose points form no polygon is an error."""
        scores: Sequence[float | None] = [None] * len(page.words)
        if self.scores is not None:
            scores = self.scores.get(name, ())
            if len(scores) != len(page.words):
                raise AnnotationError(
                    f"{name}: {len(scores)} scores for {len(page.words)} words. Pass one per word", value=name
                )
        for word, score in zip(page.words, scores, strict=True):
            if error := points_error(word.points):
                raise AnnotationError(
                    f"{name}: word {word.key} {error}. Convert the repaired copy of `glyphfeed doctor DATA --fix`",
                    value=word.points,
                )
            nested = isinstance(word.points[0][0], list | tuple)
            yield replace(word, points=word.points[0] if nested else word.points), score

    def size(self, name: str, page: Page) -> tuple[int, int]:
        """Width and height of a page, for formats that cannot do without."""
        if page.size is None:
            raise AnnotationError(
                f"{name}: the annotation does not state the size of this page, which the format needs. "
                "Set image_path to the folder of the images",
                setting="image_path",
                value=name,
            )
        return page.size


def upright_box(points: Sequence[Sequence[float]]) -> RotatedBox | None:
    """The box that an outline is if it is one that is not turned, clockwise from its left top corner."""
    box = as_rotated_box(points)
    is_turned = box is None or abs(math.sin(box.radians)) * box.width > TOLERANCE or math.cos(box.radians) < 0
    return None if is_turned else box


def attributes_of(word: Word, score: float | None) -> dict[str, Any]:
    """What a word has besides its outline, under the names that the readers know."""
    found = {"transcription": word.text, "language": word.language, "orientation": word.orientation, "score": score}
    found |= {"note": word.note}
    return {name: value for name, value in found.items() if value is not None}


def json_list(opening: str, items: Iterator[Any], closing: str) -> Iterator[str]:
    """A list of JSON values, one per line, without holding all of them."""
    separator = opening
    for item in items:
        yield f"{separator}\n{to_json(item)}"
        separator = ","
    yield closing if separator == "," else f"{opening}{closing}"
