"""Settings one at a time on the same pages: of the data path, of the codec of kept pages, of training steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig

from benchmarks.harness import Cell, Data, Figure, Row, Target, benchmark, fastest, figure, interleave
from benchmarks.loaders import (
    BATCH,
    SIZE,
    WORKERS,
    Transfer,
    epoch_seconds,
    pages,
    quick_epoch,
    touch_memory,
)
from ocr.datasets.data_module import OCRDataModule
from ocr.evaluation.boxes import BoxPool
from ocr.evaluation.hmean import HmeanIoU
from ocr.jobs.compose import compose_training
from ocr.jobs.threads import share_cores
from ocr.jobs.train import build_module
from ocr.loader import Loader
from ocr.pipeline.dense import DensePage
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import RandomStage
from ocr.pipeline.suffix import ColourJitter, Warp
from ocr.system import usable_cores
from ocr.training.module import OCRPLModule, truth_on_page

UNCACHED, DEFAULTS, OPENCV = "data.cache=off", "defaults", "random stages one by one, in OpenCV"
FIRST, WARM, TRAINING = "first epoch", "warm epoch", "training epoch, warm"
TOUCHED_BYTES = 1 << 30
# Of each setting: the dataset's, the loader's, and the epochs that it changes.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    UNCACHED: ({"cache": "off"}, {}, (FIRST, TRAINING)),
    DEFAULTS: ({}, {}, (FIRST, WARM, TRAINING)),
    "normalize=host": ({"form": "float"}, {}, (FIRST, WARM)),
    "data.num_workers=0": ({}, {"num_workers": 0}, (WARM, TRAINING)),
    "data.num_workers=1": ({}, {"num_workers": 1}, (WARM, TRAINING)),
    "letterbox.shape=page": ({"shape": "page"}, {}, (FIRST, WARM, TRAINING)),
    OPENCV: ({}, {}, (TRAINING,)),
}
BOUNDS: dict[tuple[str, str], dict[str, float]] = {
    (UNCACHED, FIRST): {"at_least": 1 / 1.25},
    (UNCACHED, TRAINING): {"at_least": 1.5},
    (OPENCV, TRAINING): {"at_least": 1.5},
}
"""As multiples of the defaults."""


class OneByOne(RandomStage):
    """A random stage as it would be without the pass over all of them: OpenCV makes a new page."""

    def __init__(self, stage: Warp | ColourJitter) -> None:
        self.stage, self.moves_geometry = stage, stage.moves_geometry

    def draw(self, rng: np.random.Generator, page: Any) -> Any:
        return self.stage.draw(rng, page)

    def apply(self, sample: Sample, parameters: Any) -> Sample:
        image = self.stage.change(sample.image, parameters)
        return replace(self.stage.follow(sample, parameters), image=image)


@benchmark("grid", table="results#grid", rounds=8)
def grid(data: Data) -> Iterator[Row]:
    """Epochs with each setting of the data path, in turns."""
    transfer, contenders = Transfer(), dict[str, Callable[[], float]]()
    for name, (_, _, epochs) in SETTINGS.items():
        for epoch in epochs:
            contenders[f"{name}, {epoch}"] = contender(data, name, epoch, transfer)
    best = fastest(interleave(contenders, data.rounds))
    counts = [len(pages(data.receipts, split)) for split in ("val", "train")]
    caption = (
        f"{counts[0]} pages to validate, {counts[1]} to train on, {SIZE}x{SIZE}, uint8, batch size {BATCH}, {WORKERS} "
        f"workers, fastest of {data.rounds} rounds, as multiples of the defaults"
    )
    for name, (_, _, epochs) in SETTINGS.items():
        cells: dict[str, Cell] = dict.fromkeys((FIRST, WARM, TRAINING))
        for epoch in epochs:
            took, usual = best[f"{name}, {epoch}"], best[f"{DEFAULTS}, {epoch}"]
            cells[epoch] = figure(took / usual, " x", Figure(took, "s"), **BOUNDS.get((name, epoch), {}))
        yield Row(name, cells, caption)


def contender(data: Data, name: str, epoch: str, transfer: Transfer) -> Callable[[], float]:
    """Seconds of such an epoch; a first one fills a cache of its own, with batch buffers that are new too."""
    if epoch == FIRST:

        def first() -> float:
            with tempfile.TemporaryDirectory(dir=data.work_folder) as folder:
                loader = load(data, name, "val", Path(folder))
                touch_memory(TOUCHED_BYTES)
                return epoch_seconds(loader)

        return first
    loader = load(data, name, "train" if epoch == TRAINING else "val", data.work_folder / "caches")
    loader.dataset.fill_cache()
    return lambda: quick_epoch(loader, transfer, epochs=1 if epoch == TRAINING else 4)


def load(data: Data, name: str, split: str, caches: Path) -> Loader:
    """The batches of a split."""
    own, more, _ = SETTINGS[name]
    kept = {"cache": "auto", "cache_folder": caches} | own
    dataset = pages(data.receipts, split, **kept)
    if name == OPENCV:
        one_by_one = (OneByOne(one) if isinstance(one, Warp | ColourJitter) else one for one in dataset.path.random)
        dataset.path = replace(dataset.path, random=tuple(one_by_one))
    order = {"shuffle": True, "drop_last": True} if split == "train" else {}
    return Loader(dataset, min(BATCH, len(dataset)), **{"num_workers": WORKERS} | order | more)


# -- lossless codecs over letterboxed pages without their border

Page = NDArray[np.uint8]
Codec = tuple[Callable[[Page], bytes], Callable[[bytes, Page], object]]
ROWS = "dense: row differences, LZ4"


def general(compress: Callable[[Any], Any], decompress: Callable[[Any, Any], Any]) -> Codec:
    """A codec of bytes."""
    return (
        lambda page: bytes(compress(page.reshape(-1).data)),
        lambda data, out: decompress(data, out.reshape(-1).data),
    )


def image(extension: str, *parameters: int) -> Codec:
    """A lossless image format."""
    return (
        lambda page: cv2.imencode(extension, page, parameters)[1].tobytes(),
        lambda data, out: np.copyto(out, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)),
    )


CODECS: dict[str, Codec] = {
    "raw": (bytes, lambda data, out: np.copyto(out.reshape(-1), np.frombuffer(data, np.uint8))),
    ROWS: (
        lambda page: DensePage.pack(page).data.tobytes(),
        lambda data, out: DensePage(np.frombuffer(data, np.uint8)).write(out),
    ),
    "LZ4": general(cramjam.lz4.compress_block, cramjam.lz4.decompress_block_into),
    "Zstandard 1": general(lambda data: cramjam.zstd.compress(data, level=1), cramjam.zstd.decompress_into),
    "Zstandard 3": general(lambda data: cramjam.zstd.compress(data, level=3), cramjam.zstd.decompress_into),
    "Snappy": general(cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw_into),
    "PNG": image(".png", cv2.IMWRITE_PNG_COMPRESSION, 1),
    "WebP": image(".webp", cv2.IMWRITE_WEBP_QUALITY, 101),
}


@benchmark("codecs", table="results#codecs", rounds=6)
def codecs(data: Data) -> Iterator[Row]:
    """Bytes, reading and writing of each codec."""
    dataset = pages(data.receipts)
    images = [content(dataset.path.make(index).image) for index in range(min(len(dataset), 40))]
    for name, (pack, unpack) in CODECS.items():
        packed, out = [pack(page) for page in images], [np.empty_like(page) for page in images]
        reading = mean_of_fastest([partial(unpack, *both) for both in zip(packed, out, strict=True)], data.rounds)
        writing = mean_of_fastest([partial(pack, page) for page in images], min(data.rounds, 2))
        assert all(np.array_equal(a, b) for a, b in zip(out, images, strict=True)), name
        size = sum(map(len, packed)) / len(images)
        kept = Target(size, "B", at_most=250e3) if name == ROWS else Figure(size, "B")
        cells = {"a page": kept, "read": Figure(reading, "s"), "write": Figure(writing, "s")}
        yield Row(name, cells, f"{len(images)} pages without their border, one thread")


def content(page: Page) -> Page:
    """A page without its padding."""
    used = page.any(axis=2)
    rows, columns = np.flatnonzero(used.any(axis=1)), np.flatnonzero(used.any(axis=0))
    return np.ascontiguousarray(page[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])


def mean_of_fastest(calls: Sequence[Callable[[], object]], rounds: int) -> float:
    """Seconds of the fastest round of each call, on average over the calls."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - start)
    return sum(best) / len(best)


# -- steps of the lite preset: pages in their own shape against squares, and threads

OWN_SHAPE, SQUARES = "defaults: pages in their own shape", "transforms.letterbox.shape=square"
OVERRIDES: dict[str, list[str]] = {
    OWN_SHAPE: [],
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
        made = {name: Trainer(compose(data, given, folder)) for name, given in OVERRIDES.items()}
        trained = interleave({name: one.training for name, one in made.items()}, data.rounds)
        validated = interleave({name: made[name].validation for name in (OWN_SHAPE, SQUARES)}, data.rounds)
        for name, one in made.items():
            ratio = max(trained[name]) / max(trained[SQUARES])
            bound = FASTER if name == OWN_SHAPE else None
            cells = {"training": figure(ratio, " x", Figure(max(trained[name]), " pages/s"), at_least=bound)}
            if name in validated:
                ratio = max(validated[name]) / max(validated[SQUARES])
                cells["validation"] = figure(ratio, " x", Figure(max(validated[name]), " pages/s"), at_least=bound)
                for split in ("train", "val"):
                    share, count = padding_of(one.loaders[split])
                    at_most = PADDING if bound else None
                    cells[f"padding, {split}"] = figure(100 * share, " %", at_most=at_most and 100 * at_most)
                    cells[f"shapes, {split}"] = figure(count, at_most=SHAPES if bound else None)
            yield Row(name, cells, "model=lite, 640 pixels, batch size 8; speed against squares")


def compose(data: Data, overrides: list[str], folder: str) -> DictConfig:
    """The settings of `ocr train`."""
    given = [f"dataset_base_path={data.receipts}", f"cache.folder={folder}", "model=lite", "transforms.size=640"]
    batches = [f"dataloaders.{split}_dataloader.batch_size=8" for split in ("train", "val")]
    return compose_training([*given, *batches, *overrides])


class Trainer:
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
