"""ShardDataset: the pages of indexed shards; shared by OCRWebDataset and OCRWebStream."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from ocr.datasets.page_dataset import PageDataset
from ocr.datasets.transforms import DBTransforms
from ocr.errors import ConfigError, DataError
from ocr.loader.protocol import CachedBatch
from ocr.pipeline.batch import as_batch
from ocr.pipeline.image_header import check_pixel_count
from ocr.pipeline.ledger import rows_of
from ocr.pipeline.sample import Sample
from ocr.shards.ready import ready_digest, ready_stages
from ocr.shards.source import ShardSource

log = logging.getLogger(__name__)


@cache
def _tell_unknown_stages() -> None:
    """Once: a stream opens every shard by itself."""
    log.warning(
        "ready shards without an index do not say which stages made their samples: these are used as they are, also if "
        "the settings here are others. Convert again, or restore the index"
    )


class ShardDataset(PageDataset):
    """Pages of shards, raw or ready; see `PageDataset` for the settings."""

    source: ShardSource

    def __init__(self, source: ShardSource, transform: DBTransforms, *, cache: str = "off", **settings: Any) -> None:
        if source.is_ready:  # Ready shards are a cache themselves.
            cache, settings = "off", settings | {"preload_everything": False}
        super().__init__(source, transform, cache=cache, **settings)
        self._refuse_other_stages()
        on_host = self.transform.host_normalization is not None
        self._has_views = source.holds_batches and not transform.random and not on_host

    def page(self, index: int) -> Sample:
        page = super().page(index)
        if page.dense is not None:  # A few bytes may declare a page of any size.
            check_pixel_count(page.dense.size, page.path, self.decode.max_pixels)
        return page

    def peek(self, indices: Sequence[int]) -> CachedBatch | None:
        # If something is wrong with a page, it is raised or skipped when the page is read by itself.
        with suppress(DataError):
            kept = self.source.view(indices) if self._has_views else None
            if kept is not None:
                return as_batch(*kept), rows_of(kept[1])
        return super().peek(indices)

    def is_current(self, indices: Sequence[int]) -> bool:
        # Views of shards are cheap to make again, and not known to be the same.
        return not self._has_views and super().is_current(indices)

    def _refuse_other_stages(self) -> None:
        index = self.source.index
        if not self.source.is_ready:
            return
        if not index.stages:
            _tell_unknown_stages()
            return
        mine = index.kind, self.fixed_part, self.targets
        if index.stages != ready_digest(*mine):
            path = " -> ".join(map(repr, ready_stages(*mine)))
            raise ConfigError(
                f"tar_path: the ready samples of {self.source.location} were made by other stages, parameters, code, "
                f"Python or libraries than these: {path}. Convert again, or read raw shards",
                setting="tar_path",
                path=self.source.location,
            )
