"""PageDataset: the pages of any source as a map-style dataset of training samples."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch.utils.data import Dataset

from ocr.cache.cache import Cache
from ocr.datasets.transforms import DBTransforms
from ocr.errors import ConfigError, DataError, GlyphFeedError, StageError, near_names
from ocr.pipeline.batch import LISTED, STACKED, Batch, Item, Slot, are_consecutive, as_batch, listed, to_item
from ocr.pipeline.cut import CutSettings, choose_cut
from ocr.pipeline.decode import Decode
from ocr.pipeline.ledger import Ledger, rows_of
from ocr.pipeline.page import FixedPart
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import Source
from ocr.pipeline.stage import run
from ocr.pipeline.targets import StoredTargets, Targets
from ocr.system import usable_cores

log = logging.getLogger(__name__)


class PageDataset(Dataset[Item | None]):
    """Pages with their maps; `dataset[i]` is a dictionary of tensors and what is known of the page.

    With `on_bad_sample="skip"` a page that cannot be read is None, which `DBCollateFN` leaves out. What happened
    to every sample of the epoch is in `dataset.ledger`, also when worker processes did the work. `cache` keeps the
    fixed part: "prefix" the page at the cut, "batch" everything to the batch, "auto" as much as is fixed. The options
    `preload_maps`, `preload_images`, `prenormalize_images` and `cache_transformed_tensors` are views of it.
    """

    def __init__(
        self,
        source: Source,
        transform: DBTransforms,
        *,
        preload_maps: bool = False,
        preload_images: bool = False,
        prenormalize_images: bool = False,
        image_loading_config: Mapping[str, Any] | None = None,
        cache_transformed_tensors: bool = False,
        on_bad_sample: str = "raise",
        targets: Targets | None = None,
        maps_folder: Path | None = None,
        seed: int = 0,
        cache: str = "off",
        cache_folder: str | os.PathLike[str] | None = None,
        cache_max_bytes: int | str = "auto",
        preload_everything: bool = False,
    ) -> None:
        """`maps_folder` holds stored maps, which are used where no random stage moves polygons."""
        if prenormalize_images and transform.normalization is not None and transform.normalize == "device":
            log.warning("prenormalize_images=true: pages of this dataset are normalised on the host, not on the device")
            transform = transform.normalized_on_host()
        self.transform = transform
        wanted = CutSettings(
            cache, preload_maps, preload_images, prenormalize_images, cache_transformed_tensors, preload_everything
        )
        self.cut = choose_cut(transform.stages, wanted, transform.host_normalization is not None)
        self.decode = _decode_stage(image_loading_config or {}, transform.needed_side)
        self.fixed_part = FixedPart(self.decode, transform.fixed)
        self.source = source
        for name, reason in source.skipped.items():
            log.warning("skipped %s: %s", name, reason)
        self.targets = targets or Targets()
        self.on_bad_sample = on_bad_sample
        self.seed = seed
        self.ledger = Ledger(source.names, list(source.skipped))
        self._settled: dict[str, int] = {}
        self._beside_batch = {"annotated": source.annotated, "targets": self.targets}
        # Shared, so that workers that live on see the epoch change.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        stored = maps_folder is not None and maps_folder.is_dir() and not transform.moves_geometry
        self.draw_maps = StoredTargets(self.targets, maps_folder) if stored and maps_folder else self.targets
        as_in_batch = self.cut.normalized or transform.host_normalization is None
        self._holds_batches = self.cut.page and self.cut.maps and as_in_batch and not transform.random
        self.cache = self._open_cache(cache_folder, cache_max_bytes) if self.cut else None
        if self.cache is not None and wanted.preloads:
            self.fill_cache("preloading pages")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Item | None:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        index %= len(self)
        kept = self.peek([index])
        if kept is not None:
            batch, notes = kept
            self.ledger.note([index], notes)
            tensors = {name: batch[plural][0] for name, plural in STACKED.items()}
            return tensors | {name: batch[name][0] for name in LISTED} | self._beside_batch
        return self.guard(index, self._item)

    def _item(self, index: int) -> Item:
        sample = self.sample(index)
        self.ledger.record(sample)
        return to_item(sample, self.transform.host_normalization, self.targets)

    def name(self, index: int) -> str:
        """The file name of a sample."""
        return self.source.names[index]

    def can_view(self, indices: Sequence[int]) -> bool:
        """Whether a batch of these samples is a view of the cache as soon as it holds them."""
        return self.cache is not None and not self.cache.stopped and self._holds_batches and are_consecutive(indices)

    def peek(self, indices: Sequence[int]) -> tuple[Batch, NDArray[np.int32]] | None:
        """A batch of neighbouring samples as views of the cache, and what to note of them when they are handed out.

        None where they must be made or copied.
        """
        kept = self.cache.view(indices) if self.cache is not None and self._holds_batches else None
        if kept is None:
            return None
        return as_batch(*kept), rows_of(kept[1])

    def keep(self, index: int) -> str:
        """See that the cache holds a sample: "hit", "miss" or "invalid" as it was, "" where the page is skipped."""
        assert self.cache is not None
        made = self.guard(index, lambda index: {"outcome": self.cache.sample(index).cached})  # type: ignore[union-attr]
        return made["outcome"] if made else ""

    def write(self, index: int, slot_for: Callable[[Sample], Slot]) -> Item | None:
        """Put a sample into its slot of a batch; what is listed of it, None where it is skipped."""
        return self.guard(index, lambda index: self._write(index, slot_for))

    def _write(self, index: int, slot_for: Callable[[Sample], Slot]) -> Item:
        sample = self._augmented(index)
        sample = slot_for(sample).write(sample, self.transform.host_normalization, self.draw_maps)
        self.ledger.record(sample)
        return listed(sample)

    def sample(self, index: int) -> Sample:
        """One page after all stages, as arrays; those of a cache are read-only."""
        return self.with_maps(self._augmented(index))

    def page(self, index: int) -> Sample:
        """One page at the cut, made now: decoded, and through the fixed part of the transforms."""
        raw = self.source.read(index)
        return raw if self.source.is_ready else self.fixed_part(raw)

    @property
    def epoch(self) -> int:
        """The epoch that randomness is drawn for."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch: other random numbers, and the ledger empty."""
        self.settle()
        self._epoch.numpy().fill(epoch)
        self.ledger.reset()
        self._settled.clear()

    def settle(self) -> None:
        """Note what this epoch had of the cache so far, for `ocr cache stats`; loaders do it when a pass ends."""
        if self.cache is not None:
            totals = self.ledger.totals()
            counts = {name: totals[f"cache_{name}"] for name in ("hits", "misses", "invalid")}
            news = {name: count - self._settled.get(name, 0) for name, count in counts.items()}
            if any(news.values()):
                self.cache.settle(**news)
                self._settled = counts

    def fill_cache(self, title: str = "filling the cache", threads: int | None = None) -> Counter[str]:
        """Make what the cache does not hold yet, in threads and with a progress bar; how many were "hit" or "miss"."""
        outcomes: Counter[str] = Counter()
        if self.cache is None:
            return outcomes
        silent = not Console().is_terminal
        with closing(self.cache.fill(self.keep, threads or usable_cores())) as made:
            for outcome in track(made, title, total=len(self), transient=True, disable=silent):
                outcomes[outcome or "skipped"] += 1
        return outcomes

    def __repr__(self) -> str:
        path = ["source", repr(self.decode), repr(self.transform), repr(self.draw_maps), "batch"]
        kind = type(self).__name__
        return f"{kind}({len(self)} pages of {self.source.location}, cache {self.cut}): {' -> '.join(path)}"

    def _augmented(self, index: int) -> Sample:
        """A page after the random stages; its maps are there only if they were cached and still fit."""
        rng = sample_generator(self.seed, self.epoch, self.source.number(index))
        return run(self.transform.random, self._at_cut(index), rng)

    def _at_cut(self, index: int) -> Sample:
        if self.cache is None:
            return self.page(index)
        kept = self.cache.sample(index)
        if self.cut.page or kept.cached != "hit":
            return kept
        return replace(self.page(index), maps=kept.maps, map_source=kept.map_source, cached=kept.cached)

    def with_maps(self, sample: Sample) -> Sample:
        """The sample with its maps: those it has, or stored or drawn ones."""
        return self.draw_maps(sample) if sample.maps is None else sample

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
            name = self.source.names[index]
            raise StageError(f"{name} (sample {index}): {type(error).__name__}: {error}") from error

    def _open_cache(self, folder: str | os.PathLike[str] | None, max_bytes: int | str) -> Cache:
        drawn = self.draw_maps if self.cut.maps else None
        normalization = self.transform.normalization if self.cut.normalized else None
        make = replace(self.fixed_part, draw_maps=drawn, normalization=normalization)
        for part in make.parts:
            if " object at 0x" in repr(part):
                log.warning(
                    "%r does not show its parameters, so the cache is rebuilt in every run. Make it a frozen dataclass",
                    part,
                )
        cache = Cache(self.source, make.parts, make, self.cut, folder, max_bytes)
        cache.start()
        return cache


def _decode_stage(config: Mapping[str, Any], needed_side: int | None) -> Decode:
    known = [field.name for field in fields(Decode) if field.name != "needed_side"]
    for key in config:
        if key not in known:
            raise ConfigError(f"image_loading_config has no setting {key!r}: {near_names(str(key), known)}")
    return Decode(**config, needed_side=needed_side)
