"""The configurations that `ocr bench` compares, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ocr.errors import ConfigError, near_names
from ocr.system import usable_cores

BASELINE = "disk"
NOTHING_KEPT: dict[str, str | bool] = {
    "cache": "off",
    "preload_maps": False,
    "preload_images": False,
    "preload_everything": False,
    "prenormalize_images": False,
    "cache_transformed_tensors": False,
}
"""Settings of a dataset that reads and makes every page anew."""
_FROM_DISK = ("data.cache=off", "use_stored_maps=false")


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to get the same pages."""

    name: str
    about: str
    overrides: tuple[str, ...]
    """What a user adds to the command line; `{split}` and the place of shards are still to be filled in."""
    needs: str = ""
    """What is made first: maps, raw or ready shards, DALI, a model."""

    def overrides_of(self, split: str) -> list[str]:
        """What a user would write."""
        return [override.format(split=split, shards="SHARDS") for override in self.overrides]

    @property
    def from_shards(self) -> bool:
        """Whether pages are read from shards instead of their folder."""
        return "data=webdataset" in self.overrides


def list_configurations(workers: Sequence[int] | None = None, with_model: bool = False) -> list[Configuration]:
    """All of them; `workers` are the numbers of threads and processes to compare."""
    dataset = "datasets.{split}_dataset"
    shards = ("data=webdataset", "shards_base_path={shards}", "data.cache=off")
    listed = [
        Configuration(BASELINE, "pages decoded and maps drawn in every epoch", _FROM_DISK),
        Configuration(
            "maps", "maps stored beside the images as .npz", ("data.cache=off", "use_stored_maps=true"), "maps"
        ),
        Configuration("preload_maps", "maps cached ahead", (*_FROM_DISK, f"{dataset}.preload_maps=true")),
        Configuration("preload_images", "pages cached ahead", (*_FROM_DISK, f"{dataset}.preload_images=true")),
        Configuration(
            "prenormalize",
            "pages cached ahead as floats",
            (*_FROM_DISK, f"{dataset}.prenormalize_images=true", "transforms.normalize=host"),
        ),
        Configuration("prefix cache", "pages at the cut cached", ("data.cache=prefix", "use_stored_maps=false")),
        Configuration(
            "tensor cache", "all but the batch cached", (*_FROM_DISK, f"{dataset}.cache_transformed_tensors=true")
        ),
        Configuration("webdataset raw", "tar shards of the encoded pages", shards, "raw"),
        Configuration("webdataset ready", "tar shards of letterboxed pages and maps", shards, "ready"),
        Configuration("dali", "NVIDIA DALI decodes", (*_FROM_DISK, "use_dali=true"), "dali"),
    ]
    return [*listed, *_by_workers(workers), *(_by_precision() if with_model else ())]


def _by_workers(workers: Sequence[int] | None) -> list[Configuration]:
    found = []
    for count in default_workers() if workers is None else workers:
        for engine in ("threads", "processes") if count else ("threads",):
            name = f"{engine} {count}" if count else "workers 0"
            about = f"as {BASELINE}, workers: {count}" + (f" {engine}" if count else "")
            own = (f"data.engine={engine}", f"dataloaders.{{split}}_dataloader.num_workers={count}")
            found.append(Configuration(name, about, (*_FROM_DISK, *own)))
    return found


def _by_precision() -> list[Configuration]:
    return [
        Configuration(
            f"validation {short}",
            f"everything cached, the model in {long}, boxes and scores",
            ("data.cache=auto", "use_stored_maps=false", f"trainer.precision={long}"),
            "model",
        )
        for short, long in (("fp32", "32-true"), ("bf16", "bf16-mixed"))
    ]


def default_workers() -> list[int]:
    """0, and powers of two up to the number of cores."""
    cores = usable_cores()
    return [0, *(1 << power for power in range(cores.bit_length()))]


def choose(listed: Sequence[Configuration], names: Sequence[str] | None) -> list[Configuration]:
    """Those of the names, in their own order; all where there are none."""
    if not names:
        return list(listed)
    known = {configuration.name: configuration for configuration in listed}
    for name in names:
        if name not in known:
            raise ConfigError(f"--only {name!r}: {near_names(name, list(known))}. Precisions need --model")
    return [configuration for configuration in listed if configuration.name in names]
