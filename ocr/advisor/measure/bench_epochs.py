"""Epochs of one configuration: batches on the model's device, or a whole validation with the model."""

from __future__ import annotations

import logging
import resource
import time
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

from ocr.advisor.catalogue import NOTHING_KEPT, Configuration
from ocr.advisor.measure.bench_data import Places
from ocr.advisor.measure.data_path import find_device
from ocr.jobs.compose import compose_training

_OF_FOLDERS = ("datasets.", "image_extensions=", "annotation_format=", "use_stored_maps=", "shards_base_path=")
"""Overrides that shards do not know, or that would lead to others."""
_PAGE_OF_MEMORY = 4096


class Epoch(NamedTuple):
    """One pass."""

    seconds: float
    cpu_seconds: float
    """Of all threads and worker processes."""
    pages: int


def compose(configuration: Configuration, given: Sequence[str], split: str, places: Places) -> DictConfig:
    """The user's config, changed to this configuration and to the folder of the benchmark."""
    own = [one for one in configuration.overrides_of(split) if not one.startswith(("data=", "shards_base_path="))]
    if configuration.from_shards:
        kept = [one for one in given if not one.lstrip("+~").startswith(("data=", *_OF_FOLDERS))]
        config = compose_training([*kept, "data=webdataset"], "ocr bench")
        config.shards_base_path = str(places.made(configuration.needs))
    else:
        config = compose_training(given, "ocr bench")
    node = config.datasets[f"{split}_dataset"]
    # The cache stays the one of `data.cache`, which every configuration sets.
    node.update({name: False for name in NOTHING_KEPT if name in node and name != "cache"})
    if not configuration.from_shards:
        annotation = None if places.annotation is None else str(places.annotation)
        node.update({"image_path": str(places.images), "annotation_path": annotation, "annotation_format": "native"})
    merged = OmegaConf.merge(config, OmegaConf.from_dotlist(own))
    assert isinstance(merged, DictConfig)
    merged.cache.folder, merged.output_dir = str(places.cache(configuration.name)), str(places.root)
    merged.use_dali = "use_dali=true" in own
    return merged


class DataEpochs:
    """The loader of training, whose batches arrive on the model's device, normalised, and are looked at."""

    def __init__(self, config: DictConfig, split: str) -> None:
        from ocr.datasets.data_module import OCRDataModule

        self._device = find_device(config.trainer.accelerator)
        data = OCRDataModule(config)
        # All that a loader asks its trainer for.
        place: Any = SimpleNamespace(root_device=self._device)
        data.trainer = SimpleNamespace(strategy=place, global_rank=0, world_size=1)  # type: ignore[assignment]
        self.loader = data.loader(split)

    def run(self) -> Epoch:
        """All batches of an epoch."""
        pages, cpu, start = 0, _cpu_seconds(), time.perf_counter()
        for batch in self.loader:
            if batch is not None:
                pages += len(batch["images"])
                touch(batch)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return Epoch(time.perf_counter() - start, _cpu_seconds() - cpu, pages)


class ModelEpochs:
    """Lightning's validation: model, boxes and scores."""

    def __init__(self, config: DictConfig, split: str) -> None:
        from ocr.datasets.data_module import OCRDataModule
        from ocr.jobs.train import build_module, build_trainer, load_checkpoint

        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        for name, value in (("enable_progress_bar", False), ("devices", 1)):
            OmegaConf.update(config, f"trainer.{name}", value, force_add=True)
        self._data, self._module = OCRDataModule(config), build_module(config)
        if config.checkpoint_path:
            load_checkpoint(self._module, str(config.checkpoint_path))
        self._trainer = build_trainer(config, training=False)
        self._pages = len(self._data.dataset(split))

    def run(self) -> Epoch:
        """One validation."""
        cpu, start = _cpu_seconds(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of few workers, and of what Lightning would rather do.
            self._trainer.validate(self._module, datamodule=self._data, verbose=False)
        return Epoch(time.perf_counter() - start, _cpu_seconds() - cpu, self._pages)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def touch(batch: dict[str, Any]) -> None:
    """Read a number of each page of memory: a view of a file that nobody looked at has not arrived yet."""
    for value in batch.values():
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            flat = value.numpy().ravel(order="K")
            flat[:: max(1, _PAGE_OF_MEMORY // flat.itemsize)].sum()
