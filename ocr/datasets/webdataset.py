"""OCRWebDataset: local or remote tar shards, with the samples of the folder that they were converted from."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ocr.cache.store import cache_root
from ocr.checks import check_choice, check_integer
from ocr.datasets.base import check_seed_and_targets
from ocr.datasets.page_dataset import PageDataset
from ocr.datasets.transforms import DBTransforms, as_transforms
from ocr.errors import ConfigError
from ocr.loader.order import Order, epoch_order, in_first_use, shard_order
from ocr.pipeline.decode import Decode
from ocr.pipeline.source import ON_BAD_SAMPLE
from ocr.pipeline.targets import Targets
from ocr.shards.source import ShardSource, open_shards, ready_stages
from ocr.shards.storage import SHARDS_AHEAD, Locations, Storage, expand, is_remote
from ocr.units import parse_bytes

log = logging.getLogger(__name__)
REMOTE_BUFFER = 1000


class OCRWebDataset(PageDataset):
    """Pages of tar shards with their maps; see `PageDataset` for the settings that all sources share.

    `tar_path` is a path, a URL that fsspec supports, a brace pattern, a glob or a list of them. Samples are read in any
    order, and an epoch resumes anywhere. Shards without the index of `glyphfeed shards` are scanned when opened, remote
    ones fetched for it. Shuffling goes from shard to shard: `shuffle_buffer` samples are shuffled
    together, by default all of local shards, and 1000 of remote ones (fewer if `shard_max_bytes` holds fewer).
    """

    def __init__(
        self,
        tar_path: Locations,
        transform: DBTransforms,
        *,
        shard_folder: str | os.PathLike[str] | None = None,
        shard_max_bytes: int | str | None = None,
        tries: int = 5,
        shuffle_buffer: int | None = None,
        on_bad_sample: str = "raise",
        image_loading_config: Mapping[str, Any] | None = None,
        targets: Targets | None = None,
        seed: int = 0,
        cache_folder: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        """`shard_folder` keeps remote shards, at most `shard_max_bytes`; each is fetched in up to `tries` attempts."""
        transform, root = as_transforms(transform), cache_root(cache_folder)
        check_seed_and_targets(seed, targets)
        check_choice("on_bad_sample", on_bad_sample, ON_BAD_SAMPLE)
        check_integer("shards.tries", tries, 1)
        if shuffle_buffer is not None:
            check_integer("shards.shuffle_buffer", shuffle_buffer, 1)
        max_bytes = None if shard_max_bytes is None else parse_bytes(shard_max_bytes, "shards.max_bytes")
        source = open_shards(
            expand(tar_path),
            Storage(Path(shard_folder) if shard_folder else root / "shards", max_bytes, tries),
            root / "pages",
            on_bad_sample=on_bad_sample,
            max_pixels=(image_loading_config or {}).get("max_pixels", Decode().max_pixels),
        )
        super().__init__(
            source,
            transform,
            on_bad_sample=on_bad_sample,
            image_loading_config=image_loading_config,
            targets=targets,
            seed=seed,
            cache_folder=cache_folder,
            **settings,
        )
        self._check_stages()
        self.shuffle_buffer, self._shards_ahead = shuffle_buffer, SHARDS_AHEAD
        self._is_remote = any(is_remote(url) for url in source.files.urls)
        if self._is_remote:
            self._fit_into(max_bytes)

    @property
    def source(self) -> ShardSource:
        """Where the pages come from."""
        source = self.path.source
        assert isinstance(source, ShardSource)
        return source

    def epoch_order(self, seed: int, epoch: int, shuffle: bool) -> Order:
        """The order of an epoch: from shard to shard, unless everything is shuffled together."""
        if shuffle and self.shuffle_buffer is not None:
            return shard_order(self.source.shard_of, seed, epoch, self.shuffle_buffer)
        return epoch_order(len(self), seed, epoch, shuffle)

    def expect(self, samples: Order | range) -> None:
        """Announce the samples of a pass, in order: their shards are fetched ahead."""
        if self._is_remote:
            files = self.source.files
            files.expect(in_first_use(len(files.urls), self.source.shard_of, samples), self._shards_ahead)

    def _fit_into(self, max_bytes: int | None) -> None:
        """Limit the samples that are shuffled together to the shards that fit into `max_bytes`."""
        wanted = self.shuffle_buffer or REMOTE_BUFFER
        shards = [shard for shard in self.source.index.shards if shard.samples]
        if max_bytes is not None and shards:
            fit = max_bytes // max(shard.bytes for shard in shards)
            self._shards_ahead = min(SHARDS_AHEAD, fit // 2)
            max_buffer = max(0, fit - self._shards_ahead - 1) * min(shard.samples for shard in shards) + 1
            if self.shuffle_buffer is not None and self.shuffle_buffer > max_buffer > 1:
                raise ConfigError(
                    f"shards.shuffle_buffer={wanted} samples are in more shards than fit into shards.max_bytes="
                    f"{max_bytes} with the next ones. Lower shuffle_buffer to {max_buffer}, or raise max_bytes",
                    setting="shards.shuffle_buffer",
                    value=wanted,
                )
            wanted = min(wanted, max_buffer)
        self.shuffle_buffer = wanted

    def _check_stages(self) -> None:
        """Raise if ready samples were made by other stages than these."""
        index, location = self.source.index, self.source.location
        if not self.source.is_ready:
            return
        if not index.stages:
            log.warning(
                "%s: without an index it is unknown which stages made these ready samples. They are used as they are, "
                "even if the settings here differ. Convert again, or restore the index",
                location,
            )
        elif index.stages != ready_stages(self.path.fixed_part):
            path = " -> ".join(map(repr, self.path.fixed_part.parts))
            raise ConfigError(
                f"tar_path: the ready samples of {location} are stale: they were not made by these stages, code and "
                f"libraries ({path}). Convert again, or read raw shards",
                setting="tar_path",
                path=location,
            )
