"""What a conversion can be told."""

from __future__ import annotations

from dataclasses import dataclass

from ocr.errors import ConfigError
from ocr.shards.index import RAW, READY
from ocr.tools.engine import check_engine
from ocr.units import parse_bytes

SAMPLES_PER_SHARD = 1000
BYTES_PER_SHARD = 256_000_000
"""Large enough to be read at the full speed of a disk or an object store, small enough to share among workers."""


@dataclass(frozen=True, slots=True)
class ConvertSettings:
    """What goes into the shards, how it is cut, and who does the work."""

    maps: bool = False
    ready: bool = False
    ready_batches: int | None = None
    samples_per_shard: int | None = None
    bytes_per_shard: int | str | None = None
    shuffle_seed: int | None = None
    overwrite: bool = False
    verify: bool = False
    deep: bool = False
    engine: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        check_engine(self.engine, self.workers)
        for name, least in (("ready_batches", 1), ("samples_per_shard", 1), ("shuffle_seed", 0)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(f"{name}={value!r} (--{name.replace('_', '-')}) is no whole number from {least} on")
        if self.ready_batches and self.shuffle_seed is not None:
            raise ConfigError(
                f"ready_batches={self.ready_batches} (--ready-batches) holds neighbours, and shuffle_seed="
                f"{self.shuffle_seed} (--shuffle-seed) parts them. Leave one of them out"
            )
        if self.most_bytes < 1:
            raise ConfigError(f"bytes_per_shard={self.bytes_per_shard!r} (--bytes-per-shard): give such as 256MB")

    @property
    def form(self) -> tuple[str, bool, int]:
        """Kind of the samples, whether they have maps, and how many of them share their members (0: none)."""
        if self.ready or self.ready_batches:
            return READY, False, self.ready_batches or 0
        return RAW, self.maps, 0

    @property
    def most_samples(self) -> float:
        """Of a shard; the defaults hold only where neither limit is given."""
        by_default = SAMPLES_PER_SHARD if self.bytes_per_shard is None else float("inf")
        return self.samples_per_shard or by_default

    @property
    def most_bytes(self) -> float:
        """Of a shard, as known before it is written."""
        if self.bytes_per_shard is not None:
            return parse_bytes(self.bytes_per_shard, "bytes_per_shard (--bytes-per-shard)")
        return BYTES_PER_SHARD if self.samples_per_shard is None else float("inf")
