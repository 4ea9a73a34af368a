"""What DALI needs of a dataset, beside what every loader needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ocr.loader.protocol import IndexedPages, Transform
from ocr.pipeline.batch import Item
from ocr.pipeline.decode import Decode
from ocr.pipeline.source import Source
from ocr.pipeline.stage import Stage
from ocr.pipeline.targets import StoredTargets, Targets


class StagedTransform(Transform, Protocol):
    """The stages between decoding and normalisation."""

    @property
    def stages(self) -> tuple[Stage, ...]: ...


@runtime_checkable
class DecodablePages(IndexedPages, Protocol):
    """Pages that can be read one by one before they are decoded."""

    @property
    def source(self) -> Source: ...

    @property
    def decode(self) -> Decode: ...

    @property
    def transform(self) -> StagedTransform: ...

    @property
    def draw_maps(self) -> Targets | StoredTargets:
        """Draws the maps of a page, or takes stored ones."""

    @property
    def cache(self) -> object | None: ...

    @property
    def seed(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def guard(self, index: int, get: Callable[[int], Item]) -> Item | None:
        """Run `get`; None if the page is bad and bad pages are skipped."""
