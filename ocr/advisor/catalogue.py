"""The catalogue: every configuration that `ocr bench` compares and `ocr advise` tries, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ocr.errors import ConfigError, near_names
from ocr.system import usable_cores

BASELINE = "no cache"
_SINGULAR = {"threads": "thread", "processes": "process"}
_SHARDS = ("data=webdataset", "shards_base_path={shards}")
_DATASET = "datasets.{split}_dataset"


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to get the same pages to the model."""

    name: str
    about: str
    overrides: tuple[str, ...]
    """What a user adds to the command line; `{split}` and `{shards}` are filled in by `overrides_for`."""
    needs: str = ""
    """What must exist first: maps, raw or ready (shards), dali, model."""

    def overrides_for(self, split: str) -> list[str]:
        """What a user would write."""
        return [override.format(split=split, shards="SHARDS") for override in self.overrides]

    @property
    def from_shards(self) -> bool:
        """Whether pages are read from shards instead of their folder."""
        return "data=webdataset" in self.overrides


_LISTED = (
    Configuration(BASELINE, "every page is decoded and its maps are drawn in every epoch", ("data.cache=off",)),
    Configuration("prefix cache", "no page is read, decoded or resized twice", ("data.cache=prefix",)),
    Configuration("auto cache", "everything fixed is cached: whole samples if nothing is random", ("data.cache=auto",)),
    Configuration("stored maps", "maps are read from .npz files, not drawn", ("use_stored_maps=true",), "maps"),
    Configuration("raw shards", "encoded pages are read from tar files", _SHARDS, "raw"),
    Configuration("ready shards", "resized pages are read from tar files, not made", _SHARDS, "ready"),
    Configuration("DALI", "NVIDIA DALI decodes and resizes", ("use_dali=true",), "dali"),
)
# The same caches under the names that OCRDataset's options have.
_OPTIONS = (
    Configuration("preload_maps", "maps are cached before the first epoch", (f"{_DATASET}.preload_maps=true",)),
    Configuration("preload_images", "pages are cached before the first epoch", (f"{_DATASET}.preload_images=true",)),
    Configuration(
        "prenormalize",
        "pages are cached as floats before the first epoch",
        (f"{_DATASET}.prenormalize_images=true", "transforms.normalize=host"),
    ),
    Configuration("tensor cache", "whole samples are cached", (f"{_DATASET}.cache_transformed_tensors=true",)),
)
# On by default: only a config that turned them off can gain from them.
_DEFAULTS = (
    Configuration("scaled decode", "JPEGs are decoded no larger than needed", ("decode.scaled=auto",)),
    Configuration(
        "uint8 to the device",
        "a quarter of the bytes are cached, copied and sent to the device",
        ("transforms.normalize=device",),
    ),
)
_PRECISIONS = (
    Configuration("fp32", "the model computes in float32", ("trainer.precision=32-true",), "model"),
    Configuration("bf16", "the model computes in bfloat16", ("trainer.precision=bf16-mixed",), "model"),
)
# Only `ocr advise` tries these: they change the model's step, not the way of a page.
_STEPS = (
    Configuration("fp16", "the model computes in float16", ("trainer.precision=16-mixed",), "model"),
    Configuration("channels last", "the colours of a pixel are neighbours", ("model.channels_last=true",), "model"),
    Configuration("channels first", "each colour is a plane", ("model.channels_last=false",), "model"),
    Configuration("compiled model", "torch.compile makes one kernel of many", ("compile_model=true",), "model"),
    Configuration(
        "gradient checkpoints",
        "blocks of the encoder are computed again in backward instead of kept",
        ("model.checkpoint_gradients=true",),
        "model",
    ),
    Configuration("page shape", "pages are not padded to squares", ("transforms.letterbox.shape=page",), "model"),
    Configuration(
        "slim decoder", "the decoder has 64 channels", ("model.channels=64", "model.head_channels=32"), "model"
    ),
)
CATALOGUE = {one.name: one for one in (*_LISTED, *_OPTIONS, *_DEFAULTS, *_PRECISIONS, *_STEPS)}


def with_workers(engine: str, count: int) -> Configuration:
    """Another number of workers, or workers of another kind: "threads" or "processes"."""
    name = f"{count} {_SINGULAR[engine] if count == 1 else engine}"
    about = f"batches are made by {name}" if count else "batches are made by the training loop itself"
    return Configuration(name if count else "0 workers", about, (f"data.engine={engine}", f"data.num_workers={count}"))


def bench_configurations(workers: Sequence[int] | None = None, with_model: bool = False) -> list[Configuration]:
    """What `ocr bench` compares; `workers` are the numbers of threads and of processes."""
    counts = default_workers() if workers is None else workers
    engines = [
        with_workers(e, count) for count in counts for e in (("threads", "processes") if count else ("threads",))
    ]
    return [*_LISTED, *_OPTIONS, *engines, *(_PRECISIONS if with_model else ())]


def default_workers() -> list[int]:
    """0, and powers of two up to the number of cores."""
    return [0, *(1 << power for power in range(usable_cores().bit_length()))]


def choose(listed: Sequence[Configuration], names: Sequence[str]) -> list[Configuration]:
    """The configurations of these names in the order of the list; all if no name is given."""
    known = [configuration.name for configuration in listed]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--only {name!r}: {near_names(name, known)}. fp32 and bf16 need --model", setting="--only", value=name
            )
    return [configuration for configuration in listed if not names or configuration.name in names]
