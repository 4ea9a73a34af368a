"""PageDataset: the pages of any source as a map-style dataset of training samples."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch.utils.data import Dataset

from ocr.cache.cache import Cache
from ocr.checks import check_choice
from ocr.datasets.transforms import DBTransforms
from ocr.errors import ConfigError, near_names
from ocr.pipeline.batch import Item, in_shape, to_item
from ocr.pipeline.decode import Decode
from ocr.pipeline.ledger import Ledger
from ocr.pipeline.path import PagePath
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import Source
from ocr.pipeline.targets import StoredTargets, Targets
from ocr.system import usable_cores

log = logging.getLogger(__name__)
CACHE_SETTINGS = ("auto", "off")
AT_ONCE = 1024
"""Pages that are queued for the threads of a pool at a time."""


class PageDataset(Dataset[Item | None]):
    """Pages with their maps; `dataset[i]` is a dictionary of tensors and of what is known about the page.

    With `on_bad_sample="skip"` a page that cannot be read is None, which `DBCollateFN` leaves out. What happened
    to every sample of the epoch is in `dataset.ledger`, even if worker processes did the work. With `cache="auto"`
    pages are kept as the fixed stages leave them. `preload_images`, `preload_everything`, `prenormalize_images` and
    `cache_transformed_tensors` all mean: fill that cache now. `preload_maps` checks maps on disk now.
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
        cache: str | bool = "off",
        cache_folder: str | os.PathLike[str] | None = None,
        cache_max_bytes: int | str = "auto",
        preload_maps: bool = False,
        preload_images: bool = False,
        preload_everything: bool = False,
        prenormalize_images: bool = False,
        cache_transformed_tensors: bool = False,
    ) -> None:
        """`maps_folder` holds stored maps, used if no random stage moves polygons."""
        cache = cache or "off"  # YAML reads a bare `off` as false.
        check_choice("data.cache", cache, CACHE_SETTINGS)
        if preload_maps and transform.moves_geometry:
            raise ConfigError(
                "preload_maps=true, but the transforms move polygons in every epoch. Set preload_maps=false",
                setting="preload_maps",
                value=True,
            )
        for name, reason in source.skipped.items():
            log.warning("skipped %s: %s", name, reason)
        self.transform = transform
        preload = preload_images or preload_everything or prenormalize_images or cache_transformed_tensors
        stored = maps_folder is not None and maps_folder.is_dir() and not transform.moves_geometry
        decode = _decode_stage(image_loading_config or {}, transform.needed_side)
        is_kept = (cache == "auto" or preload) and not source.is_ready
        self.cache = (
            Cache((decode, *transform.fixed), cache_folder, cache_max_bytes, source.location) if is_kept else None
        )
        """The pages at the cut; None if nothing is kept."""
        self.path = PagePath(
            source,
            decode,
            transform.fixed,
            transform.random,
            StoredTargets(targets or Targets(), maps_folder) if stored else targets or Targets(),  # type: ignore[arg-type]
            transform.host_normalization,
            seed,
            self.cache,
            Ledger(source.names, list(source.skipped)),
            on_bad_sample,
            transform.normalization,
        )
        # Shared, so that persistent workers see the epoch change, and how often the source did.
        self._epoch = torch.zeros(2, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._seen_changes = 0
        if preload:
            self.fill_cache("preloading pages")
        if preload_maps or (preload_everything and stored):
            self._check_maps(maps_folder)

    @property
    def source(self) -> Source:
        """Where the pages come from."""
        return self.path.source

    @property
    def decode(self) -> Decode:
        """The first stage."""
        return self.path.decode

    @property
    def targets(self) -> Targets:
        """How maps are drawn."""
        return self.path.drawn

    @property
    def ledger(self) -> Ledger:
        """What happened to each sample of the epoch."""
        return self.path.ledger

    @property
    def epoch(self) -> int:
        """The epoch that randomness is drawn for, unless a loader's pass has its own."""
        return int(self._epoch[0])

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Item | None:
        return self.item(index)

    def __getitems__(self, indices: Sequence[int]) -> list[Item | None]:
        """The samples of a batch for torch's DataLoader; a batch of `ShapeBatches` has a shape of its own."""
        shape = getattr(indices, "shape", None)
        return [in_shape(self[index], shape) for index in indices]

    def item(self, index: int, epoch: int | None = None) -> Item | None:
        """`dataset[index]` in an epoch; None: the one that was set."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        if self._seen_changes != self._epoch.numpy()[1]:
            # A persistent worker has a source of its own.
            self._seen_changes = int(self._epoch.numpy()[1])
            self.source.refresh()
        index %= len(self)
        item = None
        with self.path.guard(index):
            sample = self.sample(index, epoch)
            self.ledger.record(sample)
            item = to_item(sample, self.path.normalize, self.targets, self.path.padding)
        return item

    def sample(self, index: int, epoch: int | None = None) -> Sample:
        """One page after all stages, as arrays."""
        return self.path.sample(index, self.epoch if epoch is None else epoch)

    def at_cut(self, index: int) -> Sample:
        """One page at the cut: from the cache, or made now."""
        return self.path.at_cut(index)

    def name(self, index: int) -> str:
        """The file name of a sample."""
        return self.source.names[index]

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch: other random numbers, an empty ledger, and a look at what was edited since the last one."""
        self.flush()
        shared = self._epoch.numpy()
        shared[0] = epoch
        self.ledger.reset()
        if self.source.refresh():
            shared[1] += 1
            self._seen_changes = int(shared[1])

    def flush(self) -> None:
        """Write the pages that are on their way into the cache; loaders do it when a pass ends."""
        if self.cache is not None:
            self.cache.flush()

    def fill_cache(self, title: str = "filling the cache", threads: int | None = None) -> Counter[str]:
        """Make what the cache does not hold yet, in threads; returns how many pages were a "hit" or a "miss"."""
        if self.cache is None:
            return Counter()
        outcomes = Counter(self._of_each_page(lambda index: self.at_cut(index).cached, title, threads))
        self.flush()
        return outcomes

    def _check_maps(self, folder: Path | None) -> None:
        """Read the maps on disk once, and log how many of them belong to the pages."""
        found: Counter[str] = Counter()
        if isinstance(stored := self.path.targets, StoredTargets):

            def check(index: int) -> str:
                page = self.source.read(index)
                # Only geometry matters; of most transforms it is known without the pixels.
                return stored.read(page if self.source.is_ready else self.path.fixed_part.measure(page))[1]

            found.update(self._of_each_page(check, "checking maps", None))
        else:
            found["drawn"] = len(self)
        log.info(
            "preload_maps: of %d pages, %d have stored maps that fit, %d stale ones and %d none in %s",
            len(self),
            found["stored"],
            found["stale"],
            found["drawn"],
            folder,
        )

    def _of_each_page(self, get: Callable[[int], str], title: str, threads: int | None) -> Iterator[str]:
        """What `get` returns for every page, in threads, with a progress bar; "skipped" for a page that is skipped."""

        def guarded(index: int) -> str:
            outcome = "skipped"
            with self.path.guard(index):
                outcome = get(index)
            return outcome

        def each() -> Iterator[str]:
            pool = ThreadPoolExecutor(threads or usable_cores())
            try:
                for start in range(0, len(self), AT_ONCE):
                    yield from pool.map(guarded, range(start, min(start + AT_ONCE, len(self))))
            finally:
                pool.shutdown(cancel_futures=True)

        # Elsewhere Rich ends even a bar that is not shown with an empty line.
        yield from track(each(), title, total=len(self), transient=True) if Console().is_terminal else each()

    def __repr__(self) -> str:
        kept = "off" if self.cache is None else "auto"
        shown = ["source", repr(self.decode), repr(self.transform), repr(self.path.targets), "batch"]
        pages = f"{len(self)} pages of {self.source.location}, cache {kept}"
        return f"{type(self).__name__}({pages}): {' -> '.join(shown)}"


def _decode_stage(config: Mapping[str, Any], needed_side: int | None) -> Decode:
    known = [field.name for field in fields(Decode) if field.name != "needed_side"]
    for key in config:
        if key not in known:
            raise ConfigError(
                f"image_loading_config has no setting {key!r}. {near_names(str(key), known)}",
                setting="image_loading_config",
                value=key,
            )
    return Decode(**config, needed_side=needed_side)
