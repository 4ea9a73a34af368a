"""Pages with labels and pages without, as one source: a student learns from both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

from ocr.errors import ConfigError
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.page_index import SourceState
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import FolderSource, Source


@dataclass(slots=True, eq=False)
class JoinedSource(Source):
    """The labelled pages under the indices that they have alone, so with the same random numbers; then the others.

    Each sample says whether its page has labels.
    """

    labelled: FolderSource
    unlabelled: FolderSource

    @property
    def location(self) -> str:  # type: ignore[override]
        return f"{self.labelled.location} and {len(self.unlabelled)} pages without labels of {self.unlabelled.location}"

    @property
    def names(self) -> Sequence[str]:
        return _Names(self.labelled.names, self.unlabelled.names)

    @property
    def names_digest(self) -> str:
        return digest(self.labelled.names_digest, self.unlabelled.names_digest)

    @property
    def skipped(self) -> dict[str, str]:  # type: ignore[override]
        return self.labelled.skipped

    def read(self, index: int) -> Sample:
        source, own = self._of(index)
        return replace(source.read(own), index=index)

    def state(self, index: int) -> SourceState:
        source, own = self._of(index)
        return source.state(own)

    def size(self, index: int, max_pixels: int) -> tuple[int, int]:
        source, own = self._of(index)
        return source.size(own, max_pixels)

    def refresh(self) -> Sequence[int]:
        return self.labelled.refresh()

    def _of(self, index: int) -> tuple[FolderSource, int]:
        labelled = len(self.labelled)
        return (self.labelled, index) if index < labelled else (self.unlabelled, index - labelled)


def join(labelled: FolderSource, unlabelled: FolderSource) -> JoinedSource:
    """Both together. In the folder of the labelled pages, the others are those that its annotation leaves out."""
    if unlabelled.folder.resolve() == labelled.folder.resolve():
        known = {*labelled.names, *labelled.skipped}
        unlabelled = unlabelled.select(index for index, name in enumerate(unlabelled.names) if name not in known)
    if not len(unlabelled):
        raise ConfigError(
            f"unlabelled_path={unlabelled.folder}: all of its pages have labels. Leave distil.images out, or set it to "
            "a folder with others",
            setting="unlabelled_path",
            path=unlabelled.folder,
        )
    return JoinedSource(labelled, unlabelled)


class _Names(Sequence[str]):
    """Two sequences of names, one after the other; they may be long, so nothing is copied."""

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._first[index] if index < len(self._first) else self._second[index - len(self._first)]
