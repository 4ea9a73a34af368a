"""One line per split: what its cache keeps, before the first epoch; what happened to its pages, after each."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from rich.console import Console
from rich.text import Text

from ocr.cache.forecast import forecast
from ocr.datasets.data_module import OCRDataModule
from ocr.datasets.page_dataset import PageDataset
from ocr.datasets.webstream import OCRWebStream, StreamLedger
from ocr.geometry.mend import MAX_VERTICES
from ocr.pipeline.ledger import Ledger
from ocr.pipeline.sample import POLYGON_COUNTS

NAMED_FILES = 3
POLYGON_WORDS = dict(
    zip(
        POLYGON_COUNTS,
        ("without area or off the page", "crossed, ignored", f"of more than {MAX_VERTICES} vertices, simplified"),
        strict=True,
    )
)


class DataReport(lightning.Callback):
    """Prints cache hits and misses, and what was skipped, recovered, dropped or stale."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._validated = False
        self._told: set[str] = set()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._tell_form(trainer, "train")

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._tell_form(trainer, "val")

    def _tell_form(self, trainer: lightning.Trainer, split: str) -> None:
        """Once per split, before its first epoch: what its cache keeps, and how many pages fit."""
        module = getattr(trainer, "datamodule", None)
        dataset = module.datasets.get(split) if isinstance(module, OCRDataModule) else None
        is_first = split not in self._told and trainer.is_global_zero
        self._told.add(split)
        if is_first and isinstance(dataset, PageDataset) and dataset.cache is not None:
            line = f"{split}: {forecast(dataset.cache)}"
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        module = getattr(trainer, "datamodule", None)
        for split in ("train", "val") if self._validated else ("train",):
            dataset = module.datasets.get(split) if isinstance(module, OCRDataModule) else None
            if isinstance(dataset, PageDataset | OCRWebStream):
                counts = _counts_of_all_ranks(dataset.ledger, trainer, pl_module)
                if trainer.is_global_zero:
                    line = f"{split}: {describe(dataset, counts)}"
                    self.console.print(Text(line), soft_wrap=True)
        self._validated = False


def describe(dataset: PageDataset | OCRWebStream, counts: dict[str, int]) -> str:
    """A summary of the pages of an epoch."""
    parts = [f"{counts['seen']} pages"]
    if dataset.cache is not None:
        hits, misses, invalid = (counts[f"cache_{name}"] for name in ("hits", "misses", "invalid"))
        parts.append(f"cache {hits} hits, {misses} misses, {invalid} invalid, covers {dataset.cache.covered:.0%}")
    if counts["maps_stale"]:
        parts.append(f"{counts['maps_stale']} stale maps redrawn")
    for name, what in POLYGON_WORDS.items():
        if counts[name]:
            parts.append(f"{counts[name]} polygons {what}")
    parts += [
        f"{counts[name]} {name}{_first_files(dataset, name)}" for name in ("recovered", "skipped") if counts[name]
    ]
    return "; ".join(parts)


def _first_files(dataset: PageDataset | OCRWebStream, count: str) -> str:
    files = dataset.ledger.files(count)
    more = ", ..." if len(files) > NAMED_FILES else ""
    return f" ({', '.join(files[:NAMED_FILES])}{more})" if files else ""


def _counts_of_all_ranks(ledger: Ledger | StreamLedger, trainer: lightning.Trainer, pl_module: Any) -> dict[str, int]:
    totals = ledger.totals()
    if trainer.world_size == 1:
        return totals
    sums = trainer.strategy.reduce(torch.tensor(list(totals.values()), device=pl_module.device), reduce_op="sum")
    counts = dict(zip(totals, sums.tolist(), strict=True))
    # Every rank counts the same pages that could not become samples.
    return counts | {"skipped": counts["skipped"] - (trainer.world_size - 1) * len(ledger.left_out)}
