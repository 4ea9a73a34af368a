"""During training: where the model waits for data, one line says what would help most."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import lightning
from rich.console import Console

from ocr.advisor.measure.stage_demands import choose_pages, measure_demands, spared_kinds
from ocr.advisor.model.queueing import GIL, Consumer, Demand, Pipeline
from ocr.pipeline.cut import Cut
from ocr.system import usable_cores

TOO_MUCH = 0.1
PAGES = 8


class LiveAdvice(lightning.Callback):
    """Once the model waits for more than a tenth of an epoch, its pages are measured and the best remedy is named."""

    def __init__(self, console: Console | None = None, pages: int = PAGES) -> None:
        self.console, self.pages = console or Console(), pages
        self.told = False
        self._started = 0.0

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._started = time.perf_counter()

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        datasets = getattr(getattr(trainer, "datamodule", None), "datasets", {})
        dataset: Any = datasets.get("train")
        seconds = time.perf_counter() - self._started
        waited = pl_module.stopwatch.seconds["data wait"]
        known = hasattr(dataset, "source") and hasattr(dataset, "ledger")
        if self.told or not known or not trainer.is_global_zero or waited < TOO_MUCH * seconds:
            return
        if dataset.ledger.totals()["cache_misses"] > TOO_MUCH * dataset.ledger.totals()["seen"]:
            return  # The cache was filling: the next epoch tells.
        self.told = True
        loader: Any = trainer.train_dataloader
        batches = max(1, int(trainer.num_training_batches))
        consumer = Consumer((seconds - waited) / batches)
        demands = measure_demands(
            dataset, choose_pages(dataset, self.pages), loader.num_workers, usable_cores(), 1
        ).demands
        shape = (len(dataset), loader.batch_size, loader.num_workers, usable_cores(), loader.engine == "processes")
        told = best_remedy(Pipeline(demands, consumer, *shape), dataset)
        line = f"the model waited for data for {waited / seconds:.0%} of the epoch"
        self.console.print(f"{line}: {told}. The whole table: ocr advise", highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting, and the pipeline with it."""

    setting: str
    pipeline: Pipeline


def best_remedy(present: Pipeline, dataset: Any) -> str:
    """What the model of the pipeline ranks first, in words."""
    cached = dataset.cache is not None and dataset.cut.page
    now = replace(present, demands=after_the_cut(present.demands, dataset.cut)) if cached else present
    choices = [
        Choice(f"data.num_workers={count}", replace(now, workers=count))
        for count in (usable_cores(), 2 * usable_cores())
    ]
    if not cached:
        kept = Cut(page=True, maps=not dataset.transform.moves_geometry)
        choices.append(Choice("data.cache=auto", replace(now, demands=after_the_cut(now.demands, kept))))
    if any(demand.resource == GIL for demand in now.demands) and not now.processes:
        choices.append(Choice("data.engine=processes", replace(now, processes=True)))
    before = now.predict()
    best = min(choices, key=lambda choice: choice.pipeline.predict().epoch_seconds)
    gain = before.epoch_seconds / best.pipeline.predict().epoch_seconds
    if gain < 1.05:
        return f"{before.sentence().rstrip('.').lower()}, and no setting of the loader would change that"
    return f"{best.setting} would make epochs {gain:.1f} times as fast, by what {PAGES} pages took here"


def after_the_cut(demands: Sequence[Demand], cut: Cut) -> tuple[Demand, ...]:
    """What is left to do of pages that are cached."""
    return tuple(demand for demand in demands if demand.kind not in spared_kinds(cut))
