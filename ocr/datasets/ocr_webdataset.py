"""OCRWebDataset: tar shards, of this machine or an object store, as the dataset that their folder would be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.datasets.ocr_dataset import check_seed_and_targets
from ocr.datasets.page_dataset import PageDataset
from ocr.datasets.transforms import DBTransforms, as_transforms
from ocr.errors import ConfigError
from ocr.formats.storage import Storage, is_remote
from ocr.pipeline.cache_folder import cache_root, parse_bytes
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.order import epoch_order, shard_order
from ocr.pipeline.sample import Sample
from ocr.pipeline.shard_source import ShardSource, open_shards
from ocr.pipeline.source import ON_BAD_SAMPLE
from ocr.pipeline.targets import Targets

REMOTE_BUFFER = 1000


class OCRWebDataset(PageDataset):
    """Pages of tar shards with their maps; see `PageDataset` for the settings that all sources share.

    `tar_path` is a path, a URL that fsspec knows, a brace pattern, a glob or a list of them. With the index that
    `ocr convert` writes, samples are read at random and an epoch resumes anywhere. Shuffling goes from shard to shard:
    `shuffle_buffer` samples are shuffled together, by default all where the shards are local, 1000 where they are not.
    """

    source: ShardSource

    def __init__(
        self,
        tar_path: Any,
        transform: DBTransforms,
        *,
        image_loading_config: Mapping[str, Any] | None = None,
        on_bad_sample: str = "raise",
        targets: Targets | None = None,
        seed: int = 0,
        shard_folder: str | os.PathLike[str] | None = None,
        shard_max_bytes: int | str | None = None,
        tries: int = 5,
        shuffle_buffer: int | None = None,
        cache: str = "off",
        **settings: Any,
    ) -> None:
        transform = as_transforms(transform)
        check_seed_and_targets(seed, targets)
        if on_bad_sample not in ON_BAD_SAMPLE:
            raise ConfigError(f"on_bad_sample={on_bad_sample!r} is not one of {', '.join(ON_BAD_SAMPLE)}")
        for name, value in (("tries", tries), ("shuffle_buffer", shuffle_buffer)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError(f"shards.{name}={value!r} must be a whole number, 1 or more")
        folder = Path(shard_folder) if shard_folder else cache_root(settings.get("cache_folder")) / "shards"
        most = None if shard_max_bytes is None else parse_bytes(shard_max_bytes, "shards.max_bytes")
        source = open_shards(tar_path, Storage(folder, most, tries))
        remote = any(is_remote(url) for url in source.urls)
        self.shuffle_buffer = shuffle_buffer or (REMOTE_BUFFER if remote else None)
        super().__init__(
            source,
            transform,
            image_loading_config=image_loading_config,
            on_bad_sample=on_bad_sample,
            targets=targets,
            seed=seed,
            # Ready shards are a cache themselves.
            cache="off" if source.is_ready else cache,
            **settings,
        )
        self._refuse_other_stages()

    def epoch_order(self, seed: int, epoch: int, shuffle: bool) -> NDArray[np.int64]:
        """The order of an epoch: from shard to shard, where not everything is shuffled together."""
        if shuffle and self.shuffle_buffer is not None:
            return shard_order(self.source.shard_of, seed, epoch, self.shuffle_buffer)
        return epoch_order(len(self), seed, epoch, shuffle)

    def _fixed(self, raw: Sample) -> Sample:
        return raw if self.source.is_ready else super()._fixed(raw)

    def _refuse_other_stages(self) -> None:
        index = self.source.index
        if not self.source.is_ready or not index.stages:
            return
        mine = stages_digest((self.decode, *self.transform.fixed, self.targets))
        if index.stages != mine:
            path = " -> ".join(map(repr, (self.decode, *self.transform.fixed, self.targets)))
            raise ConfigError(
                f"tar_path: the ready samples of {self.source.place} were made by other stages, parameters, code or "
                f"libraries than these: {path}. Convert anew, or read raw shards"
            )
