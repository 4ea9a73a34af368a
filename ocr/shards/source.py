"""source: tar shards, on this machine or in an object store, become the samples that their folder would give."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import AnnotationError, DataError, ImageError
from ocr.pipeline.batch import are_consecutive
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.image_header import size_in_header
from ocr.pipeline.metadata import read_claimed_size, read_polygons
from ocr.pipeline.sample import Sample
from ocr.pipeline.signature import UNKNOWN, Signature
from ocr.pipeline.source import annotation_digest
from ocr.shards.files import ShardFiles
from ocr.shards.index import RAW, ShardIndex, image_extension
from ocr.shards.members import Members
from ocr.shards.ready import ReadySamples
from ocr.shards.storage import Storage

log = logging.getLogger(__name__)
_SIXTY_BITS = (1 << 60) - 1


class ShardSource:
    """The pages of tar shards with an index, in the order of their source, read at random."""

    def __init__(
        self,
        index: ShardIndex,
        urls: Sequence[str],
        storage: Storage,
        first_number: int = 0,
        files: ShardFiles | None = None,
    ) -> None:
        """`first_number` is the number of the first sample, if keys are not numbers; `files` are those of the URLs."""
        self._first_number = first_number
        self._has_own_keys = index.samples.has_own_keys
        # Our own keys are numbers in the order of the source, in whatever order the shards are given.
        samples = index.samples.in_order_of_keys() if self._has_own_keys else index.samples
        self.index = replace(index, samples=samples)
        self.urls = list(urls)
        self.skipped: dict[str, str] = {}
        self.files = files or ShardFiles(self.urls, index.shards, storage)
        self.reopen: Callable[[], ShardSource | None] = _unchanged
        """Opens the shards again if their files were changed since they were opened."""
        self._members = Members(self.index, self.files)
        self._ready = ReadySamples(self._members, len(samples))

    def __len__(self) -> int:
        return len(self.index.samples)

    @property
    def location(self) -> str:
        more = f" and {len(self.urls) - 1} more" if len(self.urls) > 1 else ""
        return f"{self.urls[0]}{more}"

    @property
    def names(self) -> Sequence[str]:
        return self.index.samples.names

    @cached_property
    def names_digest(self) -> str:
        return self.index.samples.names_digest

    @property
    def annotated(self) -> bool:
        return self.index.annotated

    @property
    def is_ready(self) -> bool:
        """Whether samples are stored as the fixed stages made them."""
        return self.index.kind != RAW

    @property
    def holds_batches(self) -> bool:
        """Whether several ready samples share their arrays."""
        return self.is_ready and self._members.are_batches

    @cached_property
    def shard_of(self) -> NDArray[np.int32]:
        """The shard of each sample, for an order that goes from shard to shard."""
        return self.index.samples.shard_of

    def number(self, index: int) -> int:
        """The number of a sample in the source, so that some of its shards give some of its samples."""
        if not self._has_own_keys:
            return self._first_number + index
        samples = self.index.samples
        return samples.number(index) + (samples.position(index) if self.holds_batches else 0)

    def entry(self, index: int) -> Sample:
        return self._members.entry(index)

    def read(self, index: int) -> Sample:
        return self._ready.read(index) if self.is_ready else self._read_raw(index)

    def _read_raw(self, index: int) -> Sample:
        stored, members = self.index.samples[index], self._members
        extension = image_extension(stored.members)
        if extension is None:
            found = ", ".join(stored.members)
            problem = f"{members.where(index)}: no image among its members {found}"
            raise ImageError(problem, value=found, path=members.path(index))
        encoded = members.data(index, extension).tobytes()
        if stored.content and content_digest(encoded).hex() != stored.content:
            where = members.where(index, extension)
            problem = f"{where}: not the bytes that were stored. Fetch the shard again"
            raise ImageError(problem, path=members.path(index))
        document = members.json(index)
        where = members.where(index, "json")
        claimed, polygons = read_claimed_size(document, where), read_polygons(document, where)
        if stored.annotation and annotation_digest(polygons, claimed, self.annotated).hex() != stored.annotation:
            raise AnnotationError(f"{where}: not the annotation that was stored", path=members.path(index))
        return replace(members.named(index, document), polygons=polygons, claimed_size=claimed, encoded=encoded)

    def size(self, index: int, max_pixels: int) -> tuple[int, int]:
        """(width, height) of the upright page: from the index, or else from the shard itself."""
        stored = self.index.samples[index]
        if stored.size is not None:
            return stored.size
        if self.is_ready:
            return self._ready.read(index).shape
        page = self._read_raw(index)
        return size_in_header(BytesIO(page.encoded), page.path, max_pixels)

    def view(self, indices: Sequence[int]) -> tuple[dict[str, NDArray[Any]], list[Sample]] | None:
        """Samples of one ready batch as one array per column, nothing copied; None if they are not such samples."""
        first, last = (self.index.samples[index] for index in (indices[0], indices[-1]))
        is_one_batch = self.holds_batches and are_consecutive(indices) and first.key == last.key
        return self._ready.view(indices) if is_one_batch else None

    def signature(self, index: int) -> Signature | None:
        """From the digest of the content, so that it is the same in any shard; or else from the shard's file."""
        stored = self.index.samples[index]
        size = stored.members[image_extension(stored.members) or "json"][1]
        if not stored.content:
            return self.files.signatures.get(stored.shard, UNKNOWN)._replace(size=size)
        number = int(stored.content, 16)
        return Signature(size, number >> 60 & _SIXTY_BITS, number & _SIXTY_BITS, number >> 120)

    def look(self) -> Sequence[int]:
        """Read shards again that were changed since they were opened; returns the pages that may be others now."""
        found = self.reopen()
        if found is None:
            return ()
        if found.names_digest != self.names_digest or found.form != self.form:
            raise DataError(
                f"{self.location}: the shards were replaced by those of other pages or stages while they were open. "
                "Start again, so that they are opened anew",
                path=self.location,
            )
        log.warning("%s: changed while it was open, and read again", self.location)
        self.__dict__ = found.__dict__  # At once: other threads may be reading.
        return range(len(self))

    @property
    def form(self) -> tuple[str, str, bool, bool]:
        """What a dataset relies on as long as it is open, beside the names."""
        return self.index.kind, self.index.stages, self.annotated, self.holds_batches

    def annotation_digest(self, index: int) -> bytes:
        stored = self.index.samples[index]
        if stored.annotation:
            return bytes.fromhex(stored.annotation)
        document, where = self._members.json(index), self._members.where(index, "json")
        return annotation_digest(read_polygons(document, where), read_claimed_size(document, where), self.annotated)


def _unchanged() -> None:
    return None
