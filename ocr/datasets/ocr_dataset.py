"""OCRDataset: an annotated folder of pages as a map-style dataset of training samples."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import torch
from torch.utils.data import Dataset

from ocr.datasets.transforms import DBTransforms, as_transforms
from ocr.errors import ConfigError, DataError, near_names
from ocr.formats.maps import maps_folder
from ocr.pipeline.batch import Item, to_item
from ocr.pipeline.decode import Decode
from ocr.pipeline.ledger import Ledger
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import open_folder
from ocr.pipeline.stage import refuse_random, run
from ocr.pipeline.targets import StoredTargets, Targets

log = logging.getLogger(__name__)
CACHE_THE_PREFIX = "Keep the fixed part in memory instead: preload_images=true"


class OCRDataset(Dataset[Item | None]):
    """Pages of a folder with their maps; `dataset[i]` is a dictionary of tensors and what is known of the page.

    With `on_bad_sample="skip"` a page that cannot be read is None, which `DBCollateFN` leaves out. What happened
    to every sample of the epoch is in `dataset.ledger`, also when worker processes did the work.
    """

    def __init__(
        self,
        image_path: str | os.PathLike[str],
        annotation_path: str | os.PathLike[str] | None,
        transform: DBTransforms,
        image_extensions: Iterable[str] | None = None,
        preload_maps: bool = False,
        preload_images: bool = False,
        prenormalize_images: bool = False,
        image_loading_config: Mapping[str, Any] | None = None,
        cache_transformed_tensors: bool = False,
        *,
        annotation_format: str = "auto",
        on_bad_sample: str = "raise",
        targets: Targets | None = None,
        use_stored_maps: bool = True,
        seed: int = 0,
    ) -> None:
        transform = as_transforms(transform)
        if prenormalize_images and transform.normalize == "device":
            raise ConfigError(
                "prenormalize_images=true, but normalize=device leaves images uint8 until the device. Drop one"
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"seed={seed!r} must be a whole number, 0 or more")
        if not isinstance(targets, Targets | None):
            raise ConfigError(f"targets={targets!r} is not an ocr.pipeline.targets.Targets")
        if cache_transformed_tensors:
            refuse_random(transform.stages, "cache_transformed_tensors=true", CACHE_THE_PREFIX)
        if prenormalize_images:
            refuse_random(transform.stages, "prenormalize_images=true", CACHE_THE_PREFIX)
        self.transform = transform
        self.decode = _decode_stage(image_loading_config or {}, transform.needed_side)
        self.source = open_folder(
            image_path,
            annotation_path,
            annotation_format=annotation_format,
            image_extensions=image_extensions,
            on_bad_sample=on_bad_sample,
        )
        for name, reason in self.source.skipped.items():
            log.warning("skipped %s: %s", name, reason)
        self.targets = targets or Targets()
        self.on_bad_sample = on_bad_sample
        self.seed = seed
        self.ledger = Ledger([entry.filename for entry in self.source.entries], list(self.source.skipped))
        # Shared, so that workers that live on see the epoch change.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._draw_maps = self._map_stage(preload_maps) if use_stored_maps or preload_maps else self.targets
        self._pages: dict[int, Sample] = {}
        self._items: dict[int, tuple[Item, list[int]]] | None = {} if cache_transformed_tensors else None
        if preload_images or prenormalize_images:
            self._preload_pages(prenormalize_images)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Item | None:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        index %= len(self)
        if self._items is not None and index in self._items:
            item, row = self._items[index]
            self.ledger.repeat(index, row)
            return dict(item)
        try:
            sample = self.sample(index)
        except DataError as error:
            if self.on_bad_sample == "raise":
                raise
            log.warning("skipped %s", error)
            self.ledger.skip(index)
            return None
        self.ledger.record(sample)
        item = to_item(sample, self.transform.host_normalization, self.targets)
        if self._items is not None:
            self._items[index] = item, self.ledger.row(index)
            return dict(item)
        return item

    def sample(self, index: int) -> Sample:
        """One page after all stages, as arrays."""
        page = self._pages.get(index) or self.page(index)
        rng = sample_generator(self.seed, self.epoch, index)
        return self._draw_maps(run(self.transform.random, page, rng))

    def page(self, index: int) -> Sample:
        """One page at the cut: decoded, and through the fixed part of the transforms."""
        page = self.decode(self.source.read(index))
        for stage in self.transform.fixed:
            page = stage(page)
        return page

    @property
    def epoch(self) -> int:
        """The epoch that randomness is drawn for."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch: other random numbers, and the ledger empty."""
        self._epoch.fill_(epoch)
        self.ledger.reset()

    def __repr__(self) -> str:
        path = ["source", repr(self.decode), repr(self.transform), repr(self._draw_maps), "batch"]
        return f"OCRDataset({len(self)} pages of {self.source.folder}): {' -> '.join(path)}"

    def _map_stage(self, preload: bool) -> Targets | StoredTargets:
        folder = maps_folder(self.source.folder)
        if self.transform.moves_geometry or not folder.is_dir():
            # A page that is turned or cropped anew every epoch has other maps every epoch.
            if preload:
                reason = "the transforms move polygons" if self.transform.moves_geometry else f"{folder} is not there"
                raise ConfigError(
                    f"preload_maps=true, but {reason}: stored maps would not be used. Set preload_maps=false"
                    + ("" if self.transform.moves_geometry else ", or write them: python scripts/preprocess_maps.py")
                )
            return self.targets
        stored = StoredTargets(self.targets, folder)
        if preload:
            for entry in self.source.entries:
                try:
                    stored.preloaded[entry.filename] = stored.read(entry.filename)
                except (DataError, FileNotFoundError):
                    continue  # Drawn, and counted, when the page is asked for.
        return stored

    def _preload_pages(self, prenormalize: bool) -> None:
        from rich.progress import track

        def load(index: int) -> Sample | None:
            try:
                page = self.page(index)
            except DataError:
                if self.on_bad_sample == "raise":
                    raise
                return None  # Skipped, and counted, when it is asked for.
            normalization = self.transform.host_normalization
            if prenormalize and normalization is not None:
                return replace(page, image=normalization.on_host(page.image).transpose(1, 2, 0))
            return page

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            loaded = threads.map(load, range(len(self)))
            for index, page in enumerate(track(loaded, "preloading pages", total=len(self), transient=True)):
                if page is not None:
                    self._pages[index] = page


def _decode_stage(config: Mapping[str, Any], needed_side: int | None) -> Decode:
    known = [field.name for field in fields(Decode) if field.name != "needed_side"]
    for key in config:
        if key not in known:
            raise ConfigError(f"image_loading_config has no setting {key!r}: {near_names(str(key), known)}")
    return Decode(**config, needed_side=needed_side)
