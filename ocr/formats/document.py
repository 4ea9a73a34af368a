"""One annotation file on its way to pages: its content, and what its parser has to know besides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.categories import Categories
from ocr.formats.names import ImageNames


@dataclass(frozen=True, slots=True)
class Document:
    """A file as text, and as the value or element that its JSON or XML holds (None for other text)."""

    path: Path
    text: str
    root: Any
    names: ImageNames
    categories: Categories
    notes: list[str]

    @property
    def where(self) -> str:
        """The file, as messages name it."""
        return str(self.path)


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(
            f"{where}: not valid JSON ({error}): export it again, or set annotation_format (--format) to its format",
            value=str(error),
        ) from error
