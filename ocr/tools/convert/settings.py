"""The settings of a conversion."""

from __future__ import annotations

from dataclasses import dataclass

from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.shards.index import RAW, READY
from ocr.tools.executor import check_executor
from ocr.units import parse_bytes

SAMPLES_PER_SHARD = 1000
BYTES_PER_SHARD = 256_000_000
"""Large enough to be read at the full speed of a disk or an object store, small enough to share among workers."""


@dataclass(frozen=True, slots=True)
class ConvertSettings:
    """What goes into the shards, how large they are, and which executor writes them."""

    ready: bool = False
    samples_per_shard: int | None = None
    bytes_per_shard: int | str | None = None
    shuffle_seed: int | None = None
    overwrite: bool = False
    verify: bool = False
    executor: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        check_executor(self.executor, self.workers)
        for name, minimum in (("samples_per_shard", 1), ("shuffle_seed", 0)):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), minimum)
        if self.max_bytes < 1:
            raise ConfigError(
                f"bytes_per_shard={self.bytes_per_shard!r} must be a size >= 1 byte, such as 256MB",
                setting="bytes_per_shard",
                value=self.bytes_per_shard,
            )

    @property
    def kind(self) -> str:
        """The kind of the samples."""
        return READY if self.ready else RAW

    @property
    def max_samples(self) -> float:
        """Samples per shard; the defaults apply only if neither limit is given."""
        by_default = SAMPLES_PER_SHARD if self.bytes_per_shard is None else float("inf")
        return self.samples_per_shard or by_default

    @property
    def max_bytes(self) -> float:
        """Bytes per shard, as estimated before it is written."""
        if self.bytes_per_shard is not None:
            return parse_bytes(self.bytes_per_shard, "bytes_per_shard (--bytes-per-shard)")
        return BYTES_PER_SHARD if self.samples_per_shard is None else float("inf")
