"""Settings of the data path, one at a time, on the same pages, and the codecs that pages can be kept in; no model."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Cell, Data, Figure, Row, Target, benchmark, cost, fastest, figure, interleave, times
from benchmarks.loaders import (
    BATCH,
    SIZE,
    WORKERS,
    Transfer,
    epoch_seconds,
    pages,
    quick_epoch,
    reference,
    reference_training,
    touch_memory,
)
from ocr.datasets.page_dataset import PageDataset
from ocr.loader import Loader
from ocr.pipeline.dense import DensePage
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import RandomStage
from ocr.pipeline.suffix import ColourJitter, Warp

PLAIN, ITEMS, UNCACHED, DEFAULTS = "plain pipeline", "plain pipeline that keeps its items", "data.cache=off", "defaults"
HEADINGS = ("first epoch", "warm epoch", "training epoch, warm")
TOUCHED_BYTES = 1 << 30


class OneByOne(RandomStage):
    """A random stage as it would be without the pass over all of them: OpenCV makes a new page."""

    def __init__(self, stage: Warp | ColourJitter) -> None:
        self.stage, self.moves_geometry = stage, stage.moves_geometry

    def draw(self, rng: np.random.Generator, page: Any) -> Any:
        return self.stage.draw(rng, page)

    def apply(self, sample: Sample, parameters: Any) -> Sample:
        image = self.stage.change(sample.image, parameters)
        return replace(self.stage.follow(sample, parameters), image=image)


@dataclass(frozen=True)
class Setting:
    """What differs from the defaults, and what it is judged by."""

    dataset: dict[str, Any] = field(default_factory=dict)
    loader: dict[str, Any] = field(default_factory=dict)
    one_by_one: bool = False
    measures: str = "first warm training"
    filling: float | None = None
    """At most this many times an uncached epoch."""
    warm: float | None = None
    """At least this many times as fast as the plain pipeline."""
    training: dict[str, float] = field(default_factory=dict)
    """Bounds of a warm training epoch as a multiple of the defaults'."""

    def load(self, data: Data, split: str, caches: Path) -> Loader:
        """The batches of a split."""
        kept = {"cache": "auto", "cache_folder": caches} | self.dataset
        order = {"shuffle": True, "drop_last": True} if split == "train" else {}
        dataset = pages(data.receipts, split, **kept)
        if self.one_by_one:
            change_stages(dataset, lambda stage: OneByOne(stage) if isinstance(stage, Warp | ColourJitter) else stage)
        return Loader(dataset, min(BATCH, len(dataset)), **{"num_workers": WORKERS} | order | self.loader)


def change_stages(dataset: PageDataset, change: Callable[[Any], Any]) -> None:
    """Replace each random stage; leave out those that become None."""
    stages = tuple(filter(None, map(change, dataset.path.random)))
    dataset.path = replace(dataset.path, random=stages)


SETTINGS = {
    UNCACHED: Setting({"cache": "off"}, measures="first"),
    DEFAULTS: Setting(filling=1.25, warm=60),
    "normalize=host": Setting({"form": "float"}, measures="first warm", warm=40),
    "data.num_workers=0": Setting(loader={"num_workers": 0}, measures="warm training"),
    "data.num_workers=1": Setting(loader={"num_workers": 1}, measures="warm training"),
    "letterbox.shape=page": Setting({"shape": "page"}),
    "random stages one by one, in OpenCV": Setting(one_by_one=True, measures="training", training={"at_least": 1.5}),
}


@benchmark("grid", table="results#grid", rounds=8)
def grid(data: Data) -> Iterator[Row | str]:
    """Epochs with each setting of the data path, in turns."""
    plain, kept, training = (
        reference(data.receipts),
        reference(data.receipts, keep_items=True),
        reference_training(data.receipts),
    )
    # The reference comes first, so that its workers are forked before threads get busy.
    contenders: dict[str, Callable[[], float]] = {
        f"{PLAIN}, first": lambda: epoch_seconds(plain),
        f"{ITEMS}, warm": lambda: quick_epoch(kept),
        f"{PLAIN}, training": lambda: epoch_seconds(training),
    }
    for name, setting in SETTINGS.items():
        contenders |= contenders_of(name, setting, data)
    best = fastest(interleave(contenders, data.rounds))
    counts = [len(pages(data.receipts, split)) for split in ("val", "train")]
    caption = (
        f"{counts[0]} pages to validate, {counts[1]} to train on, {SIZE}x{SIZE}, uint8, batch size {BATCH}, "
        f"{WORKERS} workers, fastest of {data.rounds} rounds"
    )
    for name in (PLAIN, ITEMS, *SETTINGS):
        yield Row(name, cells_of(name, best), caption)
    yield (
        "First: against data.cache=off. Warm, with every tensor copied: against the plain pipeline without a cache. "
        "Training: against the defaults."
    )
    yield compare_pages(data)


def contenders_of(name: str, setting: Setting, data: Data) -> dict[str, Callable[[], float]]:
    """The epochs that this setting changes."""
    found: dict[str, Callable[[], float]] = {}
    caches, transfer = data.work_folder / "caches", Transfer()
    if "first" in setting.measures:
        found[f"{name}, first"] = partial(first_epoch, setting, data)
    if "warm" in setting.measures:
        warm = filled(setting.load(data, "val", caches))
        found[f"{name}, warm"] = lambda: quick_epoch(warm, transfer)
    if "training" in setting.measures:
        augmented = filled(setting.load(data, "train", caches))
        found[f"{name}, training"] = lambda: epoch_seconds(augmented)
    return found


def filled(loader: Loader) -> Loader:
    """The loader with every page in its cache."""
    loader.dataset.fill_cache()
    return loader


def first_epoch(setting: Setting, data: Data) -> float:
    """The first epoch of a new loader, whose batch buffers are new too; a cache is filled by it."""
    folder = Path(tempfile.mkdtemp(dir=data.work_folder))
    try:
        loader = setting.load(data, "val", folder)
        touch_memory(TOUCHED_BYTES)
        return epoch_seconds(loader)
    finally:
        shutil.rmtree(folder)


def cells_of(name: str, best: dict[str, float]) -> dict[str, Cell]:
    """The row of a setting."""
    setting = SETTINGS.get(name, Setting())
    cells: dict[str, Cell] = dict.fromkeys(HEADINGS)
    first, warm, training = (best.get(f"{name}, {what}") for what in ("first", "warm", "training"))
    if first is not None:
        cells["first epoch"] = cost(first, best[f"{UNCACHED}, first"], setting.filling)
    if warm is not None:
        cells["warm epoch"] = times(best[f"{PLAIN}, first"], warm, setting.warm)
    if training is not None:
        ratio = training / best[f"{DEFAULTS}, training"]
        cells["training epoch, warm"] = figure(ratio, " x", Figure(training, "s"), **setting.training)
    return cells


def compare_pages(data: Data) -> str:
    """How far one pass is from OpenCV, in gray levels, before blur and JPEG noise, which spread every difference."""
    caches, differences = data.work_folder / "caches", []
    datasets = [Setting(one_by_one=one_by_one).load(data, "train", caches).dataset for one_by_one in (False, True)]
    for dataset in datasets:
        change_stages(dataset, lambda stage: stage if isinstance(stage, Warp | ColourJitter | OneByOne) else None)
    for index in range(min(64, len(datasets[0]))):
        one, other = (np.int16(dataset.sample(index).image) for dataset in datasets)
        differences.append(np.bincount(np.abs(one - other).ravel(), minlength=256))
    counts = np.sum(differences, axis=0)
    apart = ", ".join(f"{count:,} by {levels}" for levels, count in enumerate(counts.tolist()) if count and levels)
    mean = counts @ np.arange(256) / counts.sum()
    return f"One pass differs from OpenCV in gray levels: {apart} of {counts.sum():,} values; {mean:.5f} on average."


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
