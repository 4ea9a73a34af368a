"""Training steps and validation of the lite preset with each setting of shapes and threads, one at a time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from benchmarks.harness import Data, Figure, Row, benchmark, figure, fresh_process, interleave
from benchmarks.loaders import peak_bytes
from ocr.datasets.data_module import OCRDataModule
from ocr.evaluation.boxes import BoxPool
from ocr.evaluation.hmean import HmeanIoU
from ocr.jobs.compose import compose_training
from ocr.jobs.threads import share_cores
from ocr.jobs.train import build_module
from ocr.loader.loader import Loader
from ocr.system import usable_cores
from ocr.training.module import OCRPLModule, truth_on_page

DEFAULTS, SQUARES = "defaults: pages in their own shape", "transforms.letterbox.shape=square"
SETTINGS: dict[str, list[str]] = {
    DEFAULTS: [],
    SQUARES: [SQUARES],
    "threads.model=1": ["threads.model=1"],
    "data.num_workers=0": ["data.num_workers=0"],
    "data.num_workers=1": ["data.num_workers=1"],
    f"threads.opencv={usable_cores()}": [f"threads.opencv={usable_cores()}"],
}
PADDING, SHAPES, FASTER = 0.08, 8, 1.6


@benchmark("shapes", table="results#shapes", threads=None)
def shapes(data: Data) -> Iterator[Row | str]:
    """Steps of training and validation with the lite preset: pages against squares, and threads."""
    with tempfile.TemporaryDirectory(dir=data.work_folder) as folder:
        made = {name: Contender(compose(data, given, folder)) for name, given in SETTINGS.items()}
        trained = interleave({name: one.training for name, one in made.items()}, data.rounds)
        validated = interleave({name: made[name].validation for name in (DEFAULTS, SQUARES)}, data.rounds)
        for name, one in made.items():
            ratio = max(trained[name]) / max(trained[SQUARES])
            bound = FASTER if name == DEFAULTS else None
            cells = {"training": figure(ratio, " x", Figure(max(trained[name]), " pages/s"), at_least=bound)}
            if name in validated:
                ratio = max(validated[name]) / max(validated[SQUARES])
                cells["validation"] = figure(ratio, " x", Figure(max(validated[name]), " pages/s"), at_least=bound)
                for split in ("train", "val"):
                    share, count = padding_of(one.loaders[split])
                    at_most = PADDING if bound else None
                    cells[f"padding, {split}"] = figure(100 * share, " %", at_most=at_most and 100 * at_most)
                    cells[f"shapes, {split}"] = figure(count, at_most=SHAPES if bound else None)
                with fresh_process(None) as process:
                    added = process.submit(memory_of_steps, data, SETTINGS[name]).result()
                cells["memory of a step"] = Figure(added, "B")
            yield Row(name, cells, "model=lite, 640 pixels, batch size 8; speed against squares")


def compose(data: Data, overrides: list[str], folder: str) -> DictConfig:
    """The settings of `ocr train`."""
    given = [f"dataset_base_path={data.receipts}", f"cache.folder={folder}", "model=lite", "transforms.size=640"]
    batches = [f"dataloaders.{split}_dataloader.batch_size=8" for split in ("train", "val")]
    return compose_training([*given, *batches, *overrides])


class Contender:
    """A model with its loaders."""

    def __init__(self, config: DictConfig) -> None:
        self.config, self.module = config, build_module(config)
        self.optimizer, splits = self.module.build_optimizer(), OCRDataModule(config)
        self.loaders = {split: splits.loader(split) for split in ("train", "val")}

    def training(self) -> float:
        """Pages per second of an epoch of steps."""
        share_cores(self.config)
        start = time.perf_counter()
        return train(self.module.train(), self.optimizer, self.loaders["train"]) / (time.perf_counter() - start)

    def validation(self) -> float:
        """Pages per second of loading, model, boxes and scores."""
        share_cores(self.config)
        start = time.perf_counter()
        return validate(self.module.eval(), self.loaders["val"]) / (time.perf_counter() - start)


def train(module: OCRPLModule, optimizer: torch.optim.Optimizer, loader: Loader) -> int:
    """One epoch of training steps; returns its pages."""
    pages = 0
    for batch in loader:
        loss, _ = module.loss(module.model(module.normalization.on_device(batch["images"])), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pages += len(batch["images"])
    return pages


def validate(module: OCRPLModule, loader: Loader) -> int:
    """Score all pages; returns how many they are."""
    metric, pages, waiting = HmeanIoU(), 0, []

    def score(pool: BoxPool, keep: int) -> None:
        for found in pool.drain(keep):
            batch = waiting.pop(0)
            for number, detections in enumerate(found):
                metric.update(detections.polygons, truth_on_page(batch, number))

    with BoxPool(module.boxes) as pool, torch.inference_mode():
        for batch in loader:
            maps = module.model(module.normalization.on_device(batch["images"]), with_threshold=False).prob_map
            pool.submit(maps, batch["inverse_matrix"], batch["shape"])
            waiting.append(batch)
            pages += len(batch["images"])
            score(pool, keep=1)
        score(pool, keep=0)
    return pages


def padding_of(loader: Loader) -> tuple[float, int]:
    """Share of the pixels of an epoch that belong to no page, and how many shapes its batches have."""
    dataset: Any = loader.dataset
    side, pixels, own, found = dataset.transform.needed_side, 0, 0, set()
    for indices in loader.batch_sampler.batches(0, 0):
        height, width = getattr(indices, "shape", (side, side))
        found.add((height, width))
        pixels += len(indices) * height * width
        for index in indices:
            page = np.array(dataset.source.size(index, 1 << 40))
            own += int(np.rint(page * (side / page.max())).prod())
    return 1 - own / pixels, len(found)


def memory_of_steps(data: Data, overrides: list[str]) -> int:
    """Bytes that the training steps of one epoch add at most to this process."""
    with tempfile.TemporaryDirectory(dir=data.work_folder) as folder:
        one = Contender(compose(data, overrides, folder))
        next(iter(one.loaders["train"]))
        before = peak_bytes()
        one.training()
        return peak_bytes() - before
