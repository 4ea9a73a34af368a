"""Epochs of one configuration: batches on the model's device, or a whole validation with the model."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from ocr.advisor.catalogue import Configuration
from ocr.advisor.measure.bench_data import BenchData
from ocr.advisor.measure.model_step import find_device, wait_for
from ocr.advisor.measure.other_processes import own_cpu_seconds
from ocr.advisor.measure.pages import CACHES
from ocr.advisor.measure.timed_batches import Pass
from ocr.jobs.compose import compose_training
from ocr.pipeline.batch import Batch

_OF_FOLDERS = (
    *("datasets.", "image_extensions=", "annotation_format=", "annotation_categories="),
    *("use_stored_maps=", "shards_base_path="),
)
"""Overrides that shards do not know, or that would read other shards."""
_MEMORY_PAGE_BYTES = 4096


def bench_overrides(configuration: Configuration, split: str) -> list[str]:
    """What a user would write: nothing is cached or stored but what the configuration asks for."""
    base = ["data.cache=auto" if configuration.needs == "model" else "data.cache=off"]
    base += [] if configuration.from_shards else ["use_stored_maps=false"]
    own = configuration.overrides_for(split)
    changed = {override.partition("=")[0] for override in own}
    return [override for override in base if override.partition("=")[0] not in changed] + own


def compose(configuration: Configuration, given: Sequence[str], split: str, data: BenchData) -> DictConfig:
    """The user's config, changed to this configuration and to the folder of the benchmark."""
    own = [one for one in bench_overrides(configuration, split) if not one.startswith(("data=", "shards_base_path="))]
    if configuration.from_shards:
        kept = [one for one in given if not one.lstrip("+~").startswith(("data=", *_OF_FOLDERS))]
        config = compose_training([*kept, "data=webdataset"])
        config.shards_base_path = str(data.prepared(configuration.needs))
    else:
        config = compose_training(given)
    node = config.datasets[f"{split}_dataset"]
    # `cache` stays: it follows data.cache, which every configuration sets.
    node.update({name: False for name in CACHES if name in node and name != "cache"})
    if not configuration.from_shards:
        annotation = None if data.annotation is None else str(data.annotation)
        node.update({"image_path": str(data.images), "annotation_path": annotation, "annotation_format": "native"})
        node.annotation_categories = "auto"
    merged = OmegaConf.merge(config, OmegaConf.from_dotlist(own))
    assert isinstance(merged, DictConfig)
    if any(one.startswith("data.num_workers=") for one in own):
        # A number that the user gave for this loader alone would win otherwise.
        merged.dataloaders[f"{split}_dataloader"].num_workers = merged.data.num_workers
    merged.cache.folder, merged.output_dir = str(data.cache(configuration.name)), str(data.root)
    merged.use_dali = "use_dali=true" in own
    return merged


class DataEpochs:
    """The loader of training; its batches arrive on the model's device, normalised, and are read."""

    def __init__(self, config: DictConfig, split: str) -> None:
        from ocr.datasets.data_module import OCRDataModule

        self._device = find_device(config.trainer.accelerator)
        data = OCRDataModule(config)
        # All that the data module needs of a trainer.
        strategy: Any = SimpleNamespace(root_device=self._device)
        data.trainer = SimpleNamespace(strategy=strategy, global_rank=0, world_size=1)  # type: ignore[assignment]
        self.loader = data.loader(split)

    def run(self) -> Pass:
        """All batches of an epoch."""
        pages, cpu, start = 0, own_cpu_seconds(), time.perf_counter()
        for batch in self.loader:
            if batch is not None:
                pages += len(batch["images"])
                touch(batch)
        wait_for(self._device)
        return Pass(time.perf_counter() - start, own_cpu_seconds() - cpu, pages)


class ModelEpochs:
    """Lightning's validation: model, boxes and scores."""

    def __init__(self, config: DictConfig, split: str) -> None:
        from ocr.datasets.data_module import OCRDataModule
        from ocr.jobs.stored_settings import read_chosen
        from ocr.jobs.train import build_module, build_trainer

        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        for name, value in (("enable_progress_bar", False), ("devices", 1)):
            OmegaConf.update(config, f"trainer.{name}", value, force_add=True)
        self._data, self._module = OCRDataModule(config), build_module(config)
        stored = read_chosen(config)
        if stored is not None:
            stored.load_into(self._module.model)
        self._trainer = build_trainer(config, training=False)
        self._pages = len(self._data.dataset(split))

    def run(self) -> Pass:
        """One validation."""
        cpu, start = own_cpu_seconds(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's remarks on the number of workers, and the like.
            self._trainer.validate(self._module, datamodule=self._data, verbose=False)
        return Pass(time.perf_counter() - start, own_cpu_seconds() - cpu, self._pages)


def touch(batch: Batch) -> None:
    """Read one number per memory page: a view of a file that was never read has not been loaded yet."""
    for value in batch.values():
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            flat = value.numpy().ravel(order="K")
            flat[:: max(1, _MEMORY_PAGE_BYTES // flat.itemsize)].sum()
