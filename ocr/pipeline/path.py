"""path: THE path of a page, from its source to its place in a batch.

    source -> decode -> prefix -> | cache | -> suffix -> targets -> batch -> device

Everything up to the cut is fixed. The suffix is random, and all of its randomness is `(seed, epoch, index)`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from ocr.errors import DataError, GlyphFeedError, StageError
from ocr.pipeline.batch import Padding
from ocr.pipeline.decode import Decode
from ocr.pipeline.dense import pack_page, unpack_page
from ocr.pipeline.ledger import Ledger
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.page_index import Signature, content_digest
from ocr.pipeline.prefix import FixedPart, Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import Source, page_sizes
from ocr.pipeline.stage import FixedStage, Sizes, Stage, sample_generator
from ocr.pipeline.targets import StoredTargets, Targets, drawing
from ocr.pipeline.timing import timed

log = logging.getLogger(__name__)


class Place(Protocol):
    """Where a sample is written: a `Slot`, or a place in a batch that takes its slot from the first sample."""

    def write(self, sample: Sample, normalize: Normalize | None, targets: Targets | StoredTargets) -> Sample: ...


class Kept(NamedTuple):
    """What a cache has of a page."""

    value: bytes | memoryview | None
    outcome: str
    """ "hit", "miss", or "invalid" if the bytes were damaged."""
    recheck: bool = False
    """Whether to make the page again and compare."""


class PageCache(Protocol):
    """What keeps pages at the cut, found by what they were made of: `ocr.cache.cache.Cache`."""

    def content_of(self, path: str, signature: Signature) -> bytes | None:
        """The digest of a file's content, if the file has the signature that it had when it was read."""

    def remember(self, path: str, signature: Signature, content: bytes) -> None:
        """Note the content of a file, unless its signature does not prove it."""

    def get(self, content: bytes, annotation: bytes) -> Kept:
        """What was made of this content and annotation."""

    def put(self, content: bytes, annotation: bytes, value: bytes) -> None:
        """Keep what was made of this content and annotation."""

    def distrust(self, name: str) -> None:
        """The stages now make something else of a page: forget all that they made."""


@dataclass(frozen=True)
class PagePath:
    """The pages of a source, each step of their way a method that calls the one above it."""

    source: Source
    decode: Decode
    fixed: tuple[FixedStage, ...]
    random: tuple[Stage, ...]
    targets: Targets | StoredTargets
    normalize: Normalize | None
    """Applied while the slot is written; None: images stay uint8 until the device."""
    seed: int
    cache: PageCache | None
    ledger: Ledger
    on_bad_sample: str = "raise"
    normalization: Normalize | None = None
    """What the model's input needs, wherever it is applied."""

    def make(self, index: int) -> Sample:
        """A page at the cut, made now: read, decoded, through the fixed stages."""
        return self._made(self._read(index))

    def at_cut(self, index: int) -> Sample:
        """A page at the cut: from the cache, where a hit has the digest of what the file and annotation are now."""
        if self.cache is None or self.source.is_ready:
            return self.make(index)
        state, raw = self.source.state(index), None
        content = state.content
        if content is None and state.signature is not None:
            content = self.cache.content_of(state.path, state.signature)
        if content is None:
            # Judged before the file is read: one that changed just now may change again while it is read.
            settled = state.signature.settled() if state.signature is not None else None
            raw = self._read(index)
            content = content_digest(raw.encoded)
            if settled is not None:
                self.cache.remember(state.path, settled, content)
        kept = self.cache.get(content, state.annotation)
        if kept.value is not None and not (kept.recheck and self._differs(index, kept.value)):
            return unpack_page(kept.value, index=index, filename=state.filename, path=state.path, cached="hit")
        raw = raw or self._read(index)
        sample = self._made(raw)
        if self.source.state(index).annotation == state.annotation:
            self.cache.put(content_digest(raw.encoded), state.annotation, pack_page(sample))
        return replace(sample, cached=kept.outcome if kept.value is None else "invalid")

    def augmented(self, index: int, epoch: int) -> Sample:
        """A page of an epoch after the random stages; the last pass over its pixels is yet to be made."""
        with timed("cache"):
            sample = self.at_cut(index)
        if self.random:
            rng = sample_generator(self.seed, epoch, self.source.number(index))
            for stage in self.random:
                with timed(type(stage).__name__):
                    sample = stage.run(sample, rng)
        return sample

    def write(self, index: int, epoch: int, place: Place) -> Sample | None:
        """Everything: pixels and maps of a page of an epoch, in its place of a batch; None if the page is skipped."""
        written = None
        with self.guard(index):
            sample = self.augmented(index, epoch)
            with timed("pixels"):  # The last pass over them is left to here.
                written = place.write(sample, self.normalize, self.targets)
            self.ledger.record(written)
        return written

    def sample(self, index: int, epoch: int) -> Sample:
        """A page of an epoch by itself, with its pixels and maps."""
        return self.targets(self.augmented(index, epoch).unpacked())

    @contextmanager
    def guard(self, index: int) -> Iterator[None]:
        """Skip a page that cannot be used if `on_bad_sample="skip"`; name the page that a stage failed on."""
        try:
            yield
        except DataError as error:
            if self.on_bad_sample == "raise":
                raise
            log.warning("skipped %s", error)
            self.ledger.skip(index)
        except (GlyphFeedError, MemoryError):
            raise
        except Exception as error:
            name = self.source.names[index]
            raise StageError(
                f"{name} (sample {index}): {type(error).__name__}: {error}", value=index, path=name
            ) from error

    @property
    def drawn(self) -> Targets:
        """How maps are drawn where none are stored."""
        return drawing(self.targets)

    @cached_property
    def fixed_part(self) -> FixedPart:
        """Decode and the fixed stages as one value."""
        return FixedPart(self.decode, self.fixed)

    @cached_property
    def padding(self) -> Padding | None:
        """What is around a page in its batch; None if all pages have one size."""
        boxes = (stage for stage in (*self.fixed, *self.random) if isinstance(stage, Letterbox))
        box = next((box for box in boxes if box.shape == "page"), None)
        tall, wide = self.sizes_after(np.array([[1, 9], [9, 1]]))
        if box is None or (tall == wide).all():
            return None
        return Padding(box.fill, self.drawn.outside, self.normalize)

    def sizes_after(self, sizes: Sizes) -> Sizes:
        """The (width, height) that upright pages of these sizes will have."""
        for stage in (*self.fixed, *self.random):
            sizes = stage.sizes_after(sizes)
        return sizes

    @cached_property
    def planned_sizes(self) -> Sizes:
        """(N, 2): width and height that each page will have in a batch, from the headers of the files.

        A page that is edited later may have another size: then its batch becomes larger.
        """
        return self.sizes_after(page_sizes(self.source, self.decode.max_pixels))

    def _read(self, index: int) -> Sample:
        with timed("read"):
            return self.source.read(index)

    def _made(self, raw: Sample) -> Sample:
        return raw if self.source.is_ready else self.fixed_part(raw)

    def _differs(self, index: int, value: bytes | memoryview) -> bool:
        """Whether the stages now make something else of a page; then nothing that is kept of these stages is used."""
        assert self.cache is not None
        try:
            if pack_page(self.make(index)) == value:
                return False
        except DataError:
            return False  # The file went away since; reading the page reports it.
        self.cache.distrust(self.source.names[index])
        return True


def path_of(dataset: object) -> PagePath | None:
    """The path of a dataset of pages; None for any other dataset."""
    path = getattr(dataset, "path", None)
    return path if isinstance(path, PagePath) else None
