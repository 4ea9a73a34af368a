"""OCRWebDataset: local or remote tar shards, with the samples of the folder that they were converted from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ocr.cache.folder import cache_root
from ocr.checks import check_choice, check_integer
from ocr.datasets.base import check_seed_and_targets
from ocr.datasets.shard_dataset import ShardDataset
from ocr.datasets.transforms import DBTransforms, as_transforms
from ocr.datasets.webstream import OCRWebStream
from ocr.errors import ConfigError
from ocr.loader.order import Order, epoch_order, in_first_use, shard_order
from ocr.pipeline.source import ON_BAD_SAMPLE
from ocr.pipeline.targets import Targets
from ocr.shards.locations import Locations, expand, is_remote
from ocr.shards.open import can_be_opened, open_shards
from ocr.shards.prefetch import SHARDS_AHEAD
from ocr.shards.storage import Storage
from ocr.units import parse_bytes

REMOTE_BUFFER = 1000


class OCRWebDataset(ShardDataset):
    """Pages of tar shards with their maps; see `PageDataset` for the settings that all sources share.

    `tar_path` is a path, a URL that fsspec supports, a brace pattern, a glob or a list of them. With the index that
    `ocr convert` writes, samples are read in any order and an epoch resumes anywhere; remote shards without an index
    become an `OCRWebStream`. Shuffling goes from shard to shard: `shuffle_buffer` samples are shuffled together, by
    default all of local shards, and 1000 of remote ones (fewer if `shard_max_bytes` holds fewer).
    """

    def __new__(cls, tar_path: Any = None, *arguments: Any, **settings: Any) -> Any:
        """The dataset, or a stream if the shards have no index and are remote."""
        if tar_path is not None:  # None when a worker process unpickles a copy.
            urls, storage = expand(tar_path), _storage(settings)
            if not can_be_opened(urls, storage):
                return OCRWebStream(urls, storage, *arguments, **_checked(settings))
        return super().__new__(cls)

    def __init__(
        self,
        tar_path: Locations,
        transform: DBTransforms,
        *,
        shard_folder: str | os.PathLike[str] | None = None,
        shard_max_bytes: int | str | None = None,
        tries: int = 5,
        shuffle_buffer: int | None = None,
        **settings: Any,
    ) -> None:
        """`shard_folder` keeps remote shards, at most `shard_max_bytes`; each is fetched in up to `tries` attempts."""
        transform = as_transforms(transform)
        given = {"shard_folder": shard_folder, "shard_max_bytes": shard_max_bytes, "tries": tries}
        storage = _storage(settings | given)
        _checked(settings | {"shuffle_buffer": shuffle_buffer})
        source = open_shards(expand(tar_path), storage, cache_root(settings.get("cache_folder")) / "pages")
        super().__init__(source, transform, **settings)
        self.shuffle_buffer, self._shards_ahead = shuffle_buffer, SHARDS_AHEAD
        self._is_remote = any(is_remote(url) for url in source.urls)
        if self._is_remote:
            self._fit_into(storage.max_bytes)

    def epoch_order(self, seed: int, epoch: int, shuffle: bool) -> Order:
        """The order of an epoch: from shard to shard, unless everything is shuffled together."""
        if shuffle and self.shuffle_buffer is not None:
            return shard_order(self.source.shard_of, seed, epoch, self.shuffle_buffer)
        return epoch_order(len(self), seed, epoch, shuffle)

    def expect(self, samples: Order | range) -> None:
        """Announce the samples of a pass, in order: their shards are fetched ahead."""
        if self._is_remote:
            shards = in_first_use(len(self.source.urls), self.source.shard_of, samples)
            self.source.files.prefetch(shards, self._shards_ahead)

    def _fit_into(self, max_bytes: int | None) -> None:
        """Limit the samples that are shuffled together to the shards that fit into `max_bytes`."""
        wanted = self.shuffle_buffer or REMOTE_BUFFER
        if max_bytes is not None:
            shards = self.source.index.shards
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


def _storage(settings: dict[str, Any]) -> Storage:
    folder, max_bytes, tries = settings.get("shard_folder"), settings.get("shard_max_bytes"), settings.get("tries", 5)
    check_integer("shards.tries", tries, 1)
    kept = Path(folder) if folder else cache_root(settings.get("cache_folder")) / "shards"
    return Storage(kept, None if max_bytes is None else parse_bytes(max_bytes, "shards.max_bytes"), tries)


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without those of the storage; a ConfigError if one of them is wrong."""
    targets: Targets | None = settings.get("targets")
    check_seed_and_targets(settings.get("seed", 0), targets)
    buffer, on_bad_sample = settings.get("shuffle_buffer"), settings.get("on_bad_sample", "raise")
    check_choice("on_bad_sample", on_bad_sample, ON_BAD_SAMPLE)
    if buffer is not None:
        check_integer("shards.shuffle_buffer", buffer, 1)
    return {name: value for name, value in settings.items() if name not in ("shard_folder", "shard_max_bytes", "tries")}
