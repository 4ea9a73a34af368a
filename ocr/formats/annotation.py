"""What every annotation reader returns: pages of words, as written in the file, not yet validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Word:
    """One annotated region. `points` is what the file says, `[[x, y], ...]`; `ignore` marks text not to be learnt."""

    key: str
    points: list[Any]
    text: str | None = None
    ignore: bool = False
    language: str | None = None
    orientation: str | None = None
    note: str | None = None
    """What a person who looks at it should know; written for labelling tools, never read."""
    unit: str | None = None
    """lines or words; None: the labels do not say."""


@dataclass(frozen=True, slots=True)
class Page:
    """The words of one image, and its (width, height) if the annotation states it."""

    words: tuple[Word, ...] = ()
    size: tuple[int, int] | None = None


class PageStream(NamedTuple):
    """All pages of a split in the order of the file, to be read once."""

    path: str
    pages: Iterable[tuple[str, Page]]
    notes: Sequence[str] = ()
    """What was skipped or assumed while reading, one message each."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """All pages of a split by image file name, in the order of the file."""

    path: str
    format: str
    pages: Mapping[str, Page] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was skipped or assumed while reading, one message each."""
    files: tuple[Path, ...] = ()
    """The files that were read."""
