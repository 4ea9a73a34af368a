"""During training: if the model waits for data, one line says what would help most."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lightning
from rich.console import Console
from rich.text import Text

from ocr.advisor.measure.pages import choose_pages
from ocr.advisor.measure.stage_demands import cached_kinds, measure_demands
from ocr.advisor.model.queueing import GIL, Consumer, Demand, Pipeline
from ocr.datasets.page_dataset import PageDataset
from ocr.geometry.kernels.warm_up import warm_up
from ocr.pipeline.cut import Cut
from ocr.system import usable_cores

TOO_MUCH = 0.1
PAGES = 8


class LiveAdvice(lightning.Callback):
    """Names the best remedy, once, after an epoch in which the model waited for data for over a tenth of the time."""

    def __init__(self, console: Console | None = None, pages: int = PAGES) -> None:
        self.console, self.pages = console or Console(), pages
        self.advised = False
        self._started = self._first_wait = 0.0
        self._named: set[str] = set()
        """What was told of waits that no setting of the loader explains."""

    def setup(self, trainer: lightning.Trainer, pl_module: Any, stage: str) -> None:
        # Before the first epoch: compiling must not count as waiting for data.
        warm_up(show=trainer.is_global_zero)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._started, self._first_wait = time.perf_counter(), 0.0

    def on_train_batch_start(self, trainer: lightning.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            self._first_wait = pl_module.stopwatch.seconds["data wait"]

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        dataset = getattr(getattr(trainer, "datamodule", None), "datasets", {}).get("train")
        seconds = time.perf_counter() - self._started
        waited = pl_module.stopwatch.seconds["data wait"]
        if self.advised or not isinstance(dataset, PageDataset) or not trainer.is_global_zero:
            return
        if waited < TOO_MUCH * seconds:
            return
        told = f"the model waited for data for {waited / seconds:.0%} of the epoch"
        totals = dataset.ledger.totals()
        if totals["cache_misses"] > TOO_MUCH * totals["seen"]:
            self._name("filling", f"{told}, while the cache was filled: later epochs read it")
            return
        if waited - self._first_wait < TOO_MUCH * seconds:
            first = f"{self._first_wait:.1f} s of it for the first batch"
            self._name("starting", f"{told}, {first}: the loader was starting")
            return
        self.advised = True
        indices = choose_pages(dataset, self.pages)
        if not indices:
            return
        loader: Any = trainer.train_dataloader
        consumer = Consumer((seconds - waited) / max(1, int(trainer.num_training_batches)))
        demands = measure_demands(dataset, indices, loader.num_workers, usable_cores(), epochs=1).demands
        shape = (len(dataset), loader.batch_size, loader.num_workers, usable_cores(), loader.engine == "processes")
        remedy = best_remedy(Pipeline(demands, consumer, *shape), dataset)
        self._print(f"{told}: {remedy}, estimated from {len(indices)} pages. For all remedies: ocr advise")

    def _name(self, cause: str, line: str) -> None:
        """Once for each cause."""
        if cause not in self._named:
            self._named.add(cause)
            self._print(line)

    def _print(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


def best_remedy(present: Pipeline, dataset: PageDataset) -> str:
    """The setting that the queueing model ranks first, in words."""
    is_cached = dataset.cache is not None and dataset.cut.page
    now = replace(present, demands=after_the_cut(present.demands, dataset.cut)) if is_cached else present
    choices = {
        f"data.num_workers={count}": replace(now, workers=count) for count in (usable_cores(), 2 * usable_cores())
    }
    if not is_cached:
        kept = Cut(page=True, maps=not dataset.transform.moves_geometry)
        choices["data.cache=auto"] = replace(now, demands=after_the_cut(now.demands, kept))
    if any(demand.resource == GIL for demand in now.demands) and not now.processes:
        choices["data.engine=processes"] = replace(now, processes=True)
    before = now.predict()
    seconds = {setting: pipeline.predict().epoch_seconds for setting, pipeline in choices.items()}
    best = min(seconds, key=lambda setting: seconds[setting])
    gain = before.epoch_seconds / seconds[best]
    if gain < 1.05 and before.bottleneck == "model":
        loading, step = (1e3 * figure for figure in (before.loading_seconds, before.limits["model"]))
        return (
            f"not because of the loader, which takes {loading:.0f} ms for a batch while the model takes {step:.0f} ms: "
            "files were read for the first time, or other programs used the cores, and no setting of the loader would "
            "change that"
        )
    if gain < 1.05:
        bottleneck = before.sentence().rstrip(".")
        return f"{bottleneck[0].lower()}{bottleneck[1:]}, and no setting of the loader would change that"
    return f"{best} would make epochs {gain:.1f} times as fast"


def after_the_cut(demands: Sequence[Demand], cut: Cut) -> tuple[Demand, ...]:
    """What is left to do for pages that are cached."""
    return tuple(demand for demand in demands if demand.kind not in cached_kinds(cut))
