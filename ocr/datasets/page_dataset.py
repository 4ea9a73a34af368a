"""PageDataset: the pages of any source as a map-style dataset of training samples."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from ocr.cache.cache import Cache
from ocr.cache.form import choose_form
from ocr.cache.readahead import ReadAhead
from ocr.datasets.page_cache import PageCache, open_cache
from ocr.datasets.transforms import DBTransforms
from ocr.errors import ConfigError, DataError, GlyphFeedError, StageError, near_names
from ocr.loader.protocol import CachedBatch
from ocr.pipeline.batch import LISTED, STACKED, Item, Slot, in_shape, listed, to_item
from ocr.pipeline.cut import CutSettings, choose_cut
from ocr.pipeline.decode import Decode
from ocr.pipeline.ledger import Ledger
from ocr.pipeline.padding import Padding
from ocr.pipeline.page import FixedPart
from ocr.pipeline.page_sizes import page_sizes
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import Sample
from ocr.pipeline.sampling import run_in_one_pass
from ocr.pipeline.source import Source
from ocr.pipeline.stage import Sizes
from ocr.pipeline.targets import StoredTargets, Targets
from ocr.pipeline.timing import timed

log = logging.getLogger(__name__)


class PageDataset(Dataset[Item | None]):
    """Pages with their maps; `dataset[i]` is a dictionary of tensors and of what is known about the page.

    With `on_bad_sample="skip"` a page that cannot be read is None, which `DBCollateFN` leaves out. What happened
    to every sample of the epoch is in `dataset.ledger`, also if worker processes did the work. `cache` keeps the
    fixed part: "prefix" the page at the cut, "batch" everything up to the batch, "auto" as much as is fixed. The
    options `preload_maps`, `preload_images`, `preload_everything`, `prenormalize_images` and
    `cache_transformed_tensors` choose parts of it.
    """

    def __init__(
        self,
        source: Source,
        transform: DBTransforms,
        *,
        image_loading_config: Mapping[str, Any] | None = None,
        on_bad_sample: str = "raise",
        targets: Targets | None = None,
        maps_folder: Path | None = None,
        seed: int = 0,
        cache_folder: str | os.PathLike[str] | None = None,
        cache_max_bytes: int | str = "auto",
        cache_form: str = "auto",
        cache_max_total_bytes: int | str = "auto",
        **kept: Any,
    ) -> None:
        """`maps_folder` holds stored maps, used if no random stage moves polygons; `kept` is `CutSettings`.

        `cache_form` is "raw" (arrays as they are in a batch), "dense" (compressed pages) or "auto": raw if it fits.
        """
        wanted = CutSettings(**kept)
        self.transform = _normalized_where_kept(transform, wanted)
        cut = choose_cut(transform.stages, wanted, self.transform.host_normalization is not None)
        self.cut, form_reason = choose_form(cache_form, cut, len(source), transform.needed_side)
        self.fixed_part = FixedPart(_decode_stage(image_loading_config or {}, transform.needed_side), transform.fixed)
        self.source = source
        for name, reason in source.skipped.items():
            log.warning("skipped %s: %s", name, reason)
        self.targets = targets or Targets()
        self.draw_maps = _stored_or_drawn(self.targets, None if transform.moves_geometry else maps_folder)
        self.on_bad_sample, self.seed = on_bad_sample, seed
        self.ledger = Ledger(source.names, list(source.skipped))
        # Shared, so that persistent workers see the epoch change, and how often it did.
        self._epoch = torch.zeros(2, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._looks = 0
        self._planned_sizes: Sizes | None = None
        limits = cache_max_bytes, cache_max_total_bytes
        self._page_cache = self._open_cache(cache_folder, *limits, form_reason) if self.cut else None
        if wanted.preloads:
            self.fill_cache("preloading pages")

    @property
    def cache(self) -> Cache | None:
        """The samples at the cut; None if nothing is kept."""
        return self._page_cache.cache if self._page_cache is not None else None

    @property
    def decode(self) -> Decode:
        """The first stage."""
        return self.fixed_part.decode

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Item | None:
        return self.item(index)

    def item(self, index: int, epoch: int | None = None) -> Item | None:
        """`dataset[index]` in an epoch; None: the one that was set."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        index %= len(self)
        if self._looks != self._epoch.numpy()[1]:
            self._look()  # A persistent worker has a source of its own.
        cached = self.peek([index]) if self.padding is None else None
        if cached is None:
            return self.guard(index, lambda index: self._item(index, epoch))
        batch, rows = cached
        self.ledger.note([index], rows)
        tensors = {name: batch[plural][0] for name, plural in STACKED.items()}
        lists = {name: batch[name][0] for name in LISTED}
        return tensors | lists | {"annotated": self.source.entry(index).annotated, "targets": self.targets}

    def _item(self, index: int, epoch: int | None) -> Item:
        sample = self.sample(index, epoch)
        self.ledger.record(sample)
        return to_item(sample, self.transform.host_normalization, self.targets, self.padding)

    def __getitems__(self, indices: Sequence[int]) -> list[Item | None]:
        """The samples of a batch for torch's DataLoader; a batch of `ShapeBatches` has a shape of its own."""
        shape = getattr(indices, "shape", None)
        return [in_shape(self[index], shape) for index in indices]

    @cached_property
    def padding(self) -> Padding | None:
        """What is around a page in its batch; None if all pages have one size."""
        return self.transform.padding(self.targets)

    def planned_sizes(self) -> Sizes:
        """The (width, height) that each page will have in a batch, from the headers of the files; read once.

        A page that is edited later may have another size: then its batch becomes larger.
        """
        if self._planned_sizes is None:
            self._planned_sizes = self.transform.sizes_after(page_sizes(self.source, self.decode.max_pixels))
        return self._planned_sizes

    def name(self, index: int) -> str:
        """The file name of a sample."""
        return self.source.names[index]

    def can_view(self, indices: Sequence[int]) -> bool:
        """Whether a batch of these samples is a view of the cache as soon as it holds them."""
        return self._page_cache is not None and self._page_cache.can_view(indices)

    def peek(self, indices: Sequence[int]) -> CachedBatch | None:
        """The batch of these samples as views of the cache, if it holds them side by side."""
        return self._page_cache.peek(indices) if self._page_cache is not None else None

    def read_ahead(self, samples: NDArray[np.signedinteger[Any]] | range) -> ReadAhead | None:
        """What announces the samples of a pass to the system; None if the cache fits into memory."""
        return self._page_cache.read_ahead(samples) if self._page_cache is not None else None

    def is_current(self, indices: Sequence[int]) -> bool:
        """Whether a batch that was peeked before this epoch holds what its samples are now."""
        return self._page_cache is not None and self._page_cache.cache.is_current(indices)

    def keep(self, index: int) -> str:
        """Store a sample in the cache: "hit", "miss" or "invalid" as it was found, "" if the page is skipped."""
        cache = self.cache
        assert cache is not None
        made = self.guard(index, lambda index: {"outcome": cache.sample(index).cached})
        return made["outcome"] if made else ""

    def write(self, index: int, slot_for: Callable[[Sample], Slot], epoch: int | None = None) -> Item | None:
        """Write a sample into its slot of a batch; returns what is listed of it, or None if it is skipped."""
        return self.guard(index, lambda index: self._write(index, slot_for, epoch))

    def _write(self, index: int, slot_for: Callable[[Sample], Slot], epoch: int | None) -> Item:
        sample = self._augmented(index, epoch)
        with timed("pixels"):
            sample = slot_for(sample).write(sample, self.transform.host_normalization, self.draw_maps)
        self.ledger.record(sample)
        return listed(sample)

    def sample(self, index: int, epoch: int | None = None) -> Sample:
        """One page after all stages, as arrays; those of a cache are read-only."""
        sample = self._augmented(index, epoch).unpacked()
        return self.draw_maps(sample) if sample.maps is None else sample

    def page(self, index: int) -> Sample:
        """One page at the cut, made now: decoded, and through the fixed part of the transforms."""
        raw = self.source.read(index)
        return raw if self.source.is_ready else self.fixed_part(raw)

    @property
    def epoch(self) -> int:
        """The epoch that randomness is drawn for, unless a loader's pass has its own."""
        return int(self._epoch[0])

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch: other random numbers, an empty ledger, and a look at what was edited since the last one."""
        self.settle()
        shared = self._epoch.numpy()
        shared[:] = epoch, shared[1] + 1
        self.ledger.reset()
        changed = self._look()
        if self._page_cache is not None:
            self._page_cache.start_epoch(changed)

    def _look(self) -> Sequence[int]:
        """Follow edits of the source; returns the samples that must be proven again."""
        self._looks = int(self._epoch.numpy()[1])
        return self.source.look()

    def settle(self) -> None:
        """Add this epoch's hits and misses to the statistics of the cache; loaders do it when a pass ends."""
        if self._page_cache is not None:
            self._page_cache.settle()

    def fill_cache(self, title: str = "filling the cache", threads: int | None = None) -> Counter[str]:
        """Make what the cache does not hold yet, in threads; returns how many samples were a "hit" or a "miss"."""
        return self._page_cache.fill(self.keep, title, threads) if self._page_cache is not None else Counter()

    def __repr__(self) -> str:
        path = ["source", repr(self.decode), repr(self.transform), repr(self.draw_maps), "batch"]
        kind = type(self).__name__
        return f"{kind}({len(self)} pages of {self.source.location}, cache {self.cut}): {' -> '.join(path)}"

    def _augmented(self, index: int, epoch: int | None) -> Sample:
        """A page after the random stages, its pixels yet to be written; it has maps if cached ones still fit."""
        page = self.at_cut(index)
        if not self.transform.random:
            return page
        drawn_for = self.epoch if epoch is None else epoch
        rng = sample_generator(self.seed, drawn_for, self.source.number(index))
        return run_in_one_pass(self.transform.random, page, rng)

    def at_cut(self, index: int) -> Sample:
        with timed("cache"):
            return self._at_cut(index)

    def _at_cut(self, index: int) -> Sample:
        """One page at the cut: from the cache, or made now."""
        if self.cache is None:
            return self.page(index)
        kept = self.cache.sample(index)
        if self.cut.page or kept.cached != "hit":
            return kept
        return replace(self.page(index), maps=kept.maps, map_source=kept.map_source, cached=kept.cached)

    def guard(self, index: int, get: Callable[[int], Item]) -> Item | None:
        """Skip a page that cannot be used if `on_bad_sample="skip"`; name the page that a stage failed on."""
        try:
            return get(index)
        except DataError as error:
            if self.on_bad_sample == "raise":
                raise
            log.warning("skipped %s", error)
            self.ledger.skip(index)
            return None
        except (GlyphFeedError, MemoryError):
            raise
        except Exception as error:
            raise StageError(
                f"{self.name(index)} (sample {index}): {type(error).__name__}: {error}",
                value=index,
                path=self.name(index),
            ) from error

    def _open_cache(
        self, folder: str | os.PathLike[str] | None, max_bytes: int | str, max_total_bytes: int | str, reason: str
    ) -> PageCache:
        cut, transform = self.cut, self.transform
        drawn = self.draw_maps if cut.maps else None
        normalization = transform.normalization if cut.normalized else None
        make = replace(self.fixed_part, draw_maps=drawn, normalization=normalization)
        as_in_batch = cut.normalized or transform.host_normalization is None
        holds_batches = cut.page and cut.maps and as_in_batch and not transform.random
        cache = open_cache(self.source, make, cut, folder, max_bytes, reason, max_total_bytes)
        return PageCache(cache, self.ledger, holds_batches)


def _normalized_where_kept(transform: DBTransforms, wanted: CutSettings) -> DBTransforms:
    """Pages that are kept as floats are normalised on the host."""
    if not wanted.prenormalize_images or transform.normalization is None or transform.normalize == "host":
        return transform
    log.warning("prenormalize_images=true: pages of this dataset are normalised on the host, not on the device")
    return transform.normalized_on_host()


def _stored_or_drawn(targets: Targets, maps_folder: Path | None) -> StoredTargets | Targets:
    return StoredTargets(targets, maps_folder) if maps_folder is not None and maps_folder.is_dir() else targets


def _decode_stage(config: Mapping[str, Any], needed_side: int | None) -> Decode:
    known = [field.name for field in fields(Decode) if field.name != "needed_side"]
    for key in config:
        if key not in known:
            raise ConfigError(
                f"image_loading_config has no setting {key!r}: {near_names(str(key), known)}",
                setting="image_loading_config",
                value=key,
            )
    return Decode(**config, needed_side=needed_side)
