"""Which samples go into which shard: decided before anything is written, from the source alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ocr.errors import ConfigError, DataError
from ocr.loader.order import epoch_order
from ocr.pipeline.decode import Decode
from ocr.pipeline.prefix import FixedPart
from ocr.pipeline.source import FolderSource
from ocr.shards.index import KEY_DIGITS, RAW, shard_name
from ocr.shards.writer import Recipe, image_extension
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.executor import LazyTasks

if TYPE_CHECKING:
    from ocr.datasets import OCRDataset

PROBES = 8
"""Ready pages that are made to estimate the size of all; each has a size of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardTask:
    """All that writing a shard depends on; plain data, so that any process on any machine can do it."""

    out: Path
    split: str
    number: int
    pages: FolderSource
    """The pages of this shard, in its order."""
    indices: tuple[int, ...]
    """The indices of these pages in the split."""
    recipe: Recipe
    recipe_digest: str
    on_bad_sample: str

    @property
    def name(self) -> str:
        return shard_name(self.split, self.number)

    @property
    def path(self) -> Path:
        return self.out / self.name

    def why_left_out(self, position: int) -> str:
        """Why a page cannot be stored; empty if it can."""
        try:
            self.recipe.store(self.pages.read(position))
        except DataError as error:
            return str(error)
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The shards of a split."""

    split: str
    out: Path
    source: FolderSource
    recipe: Recipe
    on_bad_sample: str
    shards: tuple[NDArray[Any], ...]
    """Sample indices of each shard."""

    def tasks(self, numbers: Sequence[int] | None = None) -> LazyTasks[ShardTask]:
        """One per shard; by default of all shards."""
        digest, wanted = self.recipe.digest(), range(len(self.shards)) if numbers is None else numbers
        return LazyTasks(len(wanted), lambda at: self.task(wanted[at], self.shards[wanted[at]].tolist(), digest))

    def task(self, number: int, indices: Sequence[int], recipe_digest: str = "") -> ShardTask:
        """A shard of these samples."""
        pages = self.source.select(indices)
        return ShardTask(
            self.out, self.split, number, pages, tuple(indices), self.recipe, recipe_digest, self.on_bad_sample
        )

    def shard_path(self, number: int) -> Path:
        """The file of a shard."""
        return self.out / shard_name(self.split, number)


def make_plan(dataset: OCRDataset, split: str, out: Path, settings: ConvertSettings) -> Plan:
    """Check what can be checked before anything is written, and cut the split into shards."""
    if not split or split.startswith(".") or "/" in split or "\\" in split:
        raise ConfigError(
            f"split {split!r} (--split) cannot begin the name of a file: {split}-000000.tar",
            setting="--split",
            value=split,
        )
    source = absolute_source(dataset)
    for name in source.names:
        image_extension(name)
    recipe = make_recipe(dataset, settings.kind)
    order = epoch_order(len(source), settings.shuffle_seed or 0, 0, shuffle=settings.shuffle_seed is not None)
    shards = cut_into_shards(order, _sizes(recipe, source, dataset.path.on_bad_sample), settings)
    return Plan(split, out.absolute(), source, recipe, dataset.path.on_bad_sample, shards)


def make_recipe(dataset: OCRDataset, kind: str) -> Recipe:
    """The stages of a dataset, as far as its shards depend on them."""
    if kind == RAW:
        return Recipe(fixed_part=FixedPart(Decode(max_pixels=dataset.decode.max_pixels)))
    return Recipe(kind, dataset.path.fixed_part)


def absolute_source(dataset: OCRDataset) -> FolderSource:
    """The pages of a dataset under a path that is right in any folder."""
    return replace(dataset.folder_source, folder=dataset.folder_source.folder.absolute())


def cut_into_shards(order: ArrayLike, sizes: ArrayLike, settings: ConvertSettings) -> tuple[NDArray[Any], ...]:
    """Fill one shard after the other up to its limits; each takes at least one page."""
    indices = np.asarray(order)
    cuts: list[int] = []
    begun, taken_bytes = 0, 0
    for at, size in enumerate(np.asarray(sizes)[indices].tolist()):
        if at > begun and (at - begun >= settings.max_samples or taken_bytes + size > settings.max_bytes):
            cuts.append(at)
            begun, taken_bytes = at, 0
        taken_bytes += size
    return tuple(np.split(indices, cuts))


def key_of(index: int) -> str:
    """The key of a sample.

    >>> key_of(42)
    '00000042'
    """
    return f"{index:0{KEY_DIGITS}d}"


def _sizes(recipe: Recipe, source: FolderSource, on_bad_sample: str) -> NDArray[np.int64]:
    """Estimated bytes of each page: its file's, or the mean of some ready pages."""
    if recipe.kind != RAW:
        found = list(islice(_ready_bytes(recipe, source, on_bad_sample), PROBES))
        return np.full(len(source), sum(found) // max(1, len(found)))
    signatures = (source.state(index).signature for index in range(len(source)))
    return np.fromiter((signature.size if signature else 0 for signature in signatures), np.int64, len(source))


def _ready_bytes(recipe: Recipe, source: FolderSource, on_bad_sample: str) -> Iterator[int]:
    """Bytes of ready pages, first of some that are spread over the source."""
    count = len(source)
    for index in chain(range(0, count, -(-count // PROBES)) if count else (), range(count)):
        try:
            stored = recipe.store(source.read(index))
        except DataError:
            if on_bad_sample == "raise":
                raise
        else:
            yield sum(map(len, stored.members.values()))
