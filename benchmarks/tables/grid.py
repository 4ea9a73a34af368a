"""Each setting of the data path that changes its speed, one at a time, on the same pages; no model."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Cell, Data, Figure, Row, benchmark, cost, fastest, figure, interleave, times
from benchmarks.loaders import (
    BATCH,
    SIZE,
    WORKERS,
    Transfer,
    drop_files,
    epoch_seconds,
    pages,
    quick_epoch,
    reference,
    reference_training,
    touch_memory,
)
from ocr.loader import Loader
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import RandomStage
from ocr.pipeline.suffix import ColourJitter, Warp

PLAIN, ITEMS, UNCACHED, DEFAULTS = "plain pipeline", "plain pipeline that keeps its items", "data.cache=off", "defaults"
HEADINGS = ("first epoch", "warm epoch", "second run", "training epoch, warm", "kept per page")
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
    measures: str = "first warm second training"
    filling: float | None = None
    """At most this many times an uncached epoch."""
    warm: float | None = None
    """At least this many times as fast as the plain pipeline."""
    second: float | None = None
    """At most this share of the defaults."""
    kept: float | None = None
    """At most this many bytes per page."""
    training: dict[str, float] = field(default_factory=dict)
    """Bounds of a warm training epoch as a multiple of the defaults'."""

    def load(self, data: Data, split: str, caches: Path) -> Loader:
        """The batches of a split."""
        kept = {"cache": "auto", "cache_folder": caches} | self.dataset
        order = {"shuffle": True, "drop_last": True} if split == "train" else {}
        given = {"num_workers": WORKERS} | order | self.loader
        dataset = pages(data.receipts, split, **kept)
        if self.one_by_one:
            stages = dataset.transform.random
            dataset.transform.random = tuple(
                OneByOne(stage) if isinstance(stage, Warp | ColourJitter) else stage for stage in stages
            )
        return Loader(dataset, min(BATCH, len(dataset)), **given)


DENSE = {"cache_form": "dense"}
SETTINGS = {
    UNCACHED: Setting({"cache": "off"}, measures="first"),
    DEFAULTS: Setting(filling=1.15, warm=60),
    "cache.form=dense": Setting(DENSE, filling=1.15, warm=60, second=0.2, kept=250e3, training={"at_most": 1.1}),
    "cache.form=dense, normalize=host": Setting(DENSE | {"form": "float"}, measures="first warm", warm=40),
    "cache.form=dense, data.num_workers=0": Setting(DENSE, {"num_workers": 0}, measures="warm training"),
    "cache.form=dense, data.num_workers=1": Setting(DENSE, {"num_workers": 1}, measures="warm training"),
    "cache.form=dense, letterbox.shape=page": Setting(DENSE | {"shape": "page"}, measures="first warm training"),
    "data.order=blocks": Setting(loader={"order": "blocks"}, measures="training"),
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
        yield Row(name, cells_of(name, best, data), caption)
    yield (
        "First: against data.cache=off. Warm, with every tensor copied: against the plain pipeline without a cache. "
        "Second run, its cache on the disk only, and training: against the defaults."
    )
    files = [path.stat().st_size for path in (data.receipts / "images/val").iterdir() if path.is_file()]
    yield f"An image file has {Figure(float(np.mean(files)), 'B')} on average."
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
    if "second" in setting.measures:
        found[f"{name}, second"] = partial(second_run, setting, data, caches)
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


def second_run(setting: Setting, data: Data, caches: Path) -> float:
    """Opening and the first epoch of a second run."""
    drop_files(caches)
    start = time.perf_counter()
    copy = Transfer()
    for batch in setting.load(data, "val", caches):
        copy(batch)
    return time.perf_counter() - start


def cells_of(name: str, best: dict[str, float], data: Data) -> dict[str, Cell]:
    """The row of a setting."""
    setting = SETTINGS.get(name, Setting())
    cells: dict[str, Cell] = dict.fromkeys(HEADINGS)
    first, warm, second, training = (best.get(f"{name}, {what}") for what in ("first", "warm", "second", "training"))
    if first is not None:
        cells["first epoch"] = cost(first, best[f"{UNCACHED}, first"], setting.filling)
    if warm is not None:
        cells["warm epoch"] = times(best[f"{PLAIN}, first"], warm, setting.warm)
    if second is not None:
        cells["second run"] = cost(second, best[f"{DEFAULTS}, second"], setting.second)
    if training is not None:
        ratio = training / best[f"{DEFAULTS}, training"]
        cells["training epoch, warm"] = figure(ratio, " x", Figure(training, "s"), **setting.training)
    if "second" in setting.measures and name in SETTINGS:
        dataset = setting.load(data, "val", data.work_folder / "caches").dataset
        kept = dataset.cache.store().used_bytes / len(dataset)
        cells["kept per page"] = figure(kept, "B", at_most=setting.kept)
    return cells


def compare_pages(data: Data) -> str:
    """How far one pass is from OpenCV, in gray levels, before blur and JPEG noise, which spread every difference."""
    caches, differences = data.work_folder / "caches", []
    datasets = [Setting(one_by_one=one_by_one).load(data, "train", caches).dataset for one_by_one in (False, True)]
    for dataset in datasets:
        dataset.transform.random = tuple(
            stage for stage in dataset.transform.random if isinstance(stage, Warp | ColourJitter | OneByOne)
        )
    for index in range(min(64, len(datasets[0]))):
        one, other = (np.int16(dataset.sample(index).image) for dataset in datasets)
        differences.append(np.bincount(np.abs(one - other).ravel(), minlength=256))
    counts = np.sum(differences, axis=0)
    apart = ", ".join(f"{count:,} by {levels}" for levels, count in enumerate(counts.tolist()) if count and levels)
    mean = counts @ np.arange(256) / counts.sum()
    return f"One pass differs from OpenCV in gray levels: {apart} of {counts.sum():,} values; {mean:.5f} on average."
