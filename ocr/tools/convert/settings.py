"""The settings of a conversion."""

from __future__ import annotations

from dataclasses import dataclass

from ocr.checks import check_choice, check_integer
from ocr.errors import ConfigError
from ocr.shards.index import DENSE, RAW, READY
from ocr.tools.executor import check_executor
from ocr.units import parse_bytes

SAMPLES_PER_SHARD = 1000
FORMS = ("raw", "dense")
BYTES_PER_SHARD = 256_000_000
"""Large enough to be read at the full speed of a disk or an object store, small enough to share among workers."""


@dataclass(frozen=True, slots=True)
class ConvertSettings:
    """What goes into the shards, how large they are, and which executor writes them."""

    maps: bool = False
    ready: bool = False
    ready_batches: int | None = None
    form: str | None = None
    """Of ready samples: "raw" (page and maps as in a batch) or "dense" (the page compressed). None: raw for batches,
    which are views of the file, dense for others."""
    samples_per_shard: int | None = None
    bytes_per_shard: int | str | None = None
    shuffle_seed: int | None = None
    overwrite: bool = False
    verify: bool = False
    deep: bool = False
    executor: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        check_executor(self.executor, self.workers)
        for name, minimum in (("ready_batches", 1), ("samples_per_shard", 1), ("shuffle_seed", 0)):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), minimum)
        self._check_form()
        if self.ready_batches and self.shuffle_seed is not None:
            raise ConfigError(
                f"ready_batches={self.ready_batches} stores neighbouring pages together, and shuffle_seed="
                f"{self.shuffle_seed} separates them. Leave one of them out",
                setting="ready_batches",
                value=self.ready_batches,
            )
        if self.max_bytes < 1:
            raise ConfigError(
                f"bytes_per_shard={self.bytes_per_shard!r} must be a size >= 1 byte, such as 256MB",
                setting="bytes_per_shard",
                value=self.bytes_per_shard,
            )

    def _check_form(self) -> None:
        if self.form is None:
            return
        check_choice("form", self.form, FORMS)
        if not self.ready and not self.ready_batches:
            raise ConfigError(
                f"form={self.form} is the form of ready samples, and these are not. Add ready (--ready)",
                setting="form",
                value=self.form,
            )
        if self.ready_batches and self.form == "dense":
            raise ConfigError(
                f"form=dense, but ready_batches={self.ready_batches} stores batches that are viewed in place. Set "
                "form=raw, or set ready=true instead of ready_batches",
                setting="form",
                value=self.form,
            )

    @property
    def layout(self) -> tuple[str, bool, int]:
        """Kind of the samples, whether they have maps, and how many of them are stored as one batch (0: none)."""
        if self.ready_batches or (self.ready and self.form == "raw"):
            return READY, False, self.ready_batches or 0
        return (DENSE, False, 0) if self.ready else (RAW, self.maps, 0)

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
