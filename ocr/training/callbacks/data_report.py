"""One line per split: where its pages are kept, before the first epoch; what happened to them, when that changes."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from rich.console import Console
from rich.text import Text

from ocr.datasets.data_module import OCRDataModule
from ocr.datasets.page_dataset import PageDataset
from ocr.geometry.mend import MAX_VERTICES
from ocr.pipeline.ledger import Ledger
from ocr.pipeline.sample import POLYGON_COUNTS
from ocr.units import format_bytes

NAMED_FILES = 3
POLYGON_WORDS = dict(
    zip(
        POLYGON_COUNTS,
        ("without area or off the page", "crossed, ignored", f"of more than {MAX_VERTICES} vertices, simplified"),
        strict=True,
    )
)


class DataReport(lightning.Callback):
    """Prints cache hits and misses, and what was skipped, recovered, dropped or stale, when it changes."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._validated = False
        self._reported: set[str] = set()
        self._latest: dict[str, dict[str, int]] = {}

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._report_cache(trainer, "train")

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._report_cache(trainer, "val")

    def _report_cache(self, trainer: lightning.Trainer, split: str) -> None:
        """Once per split, before its first epoch: where its pages are kept, and how much room there is."""
        module = getattr(trainer, "datamodule", None)
        dataset = module.datasets.get(split) if isinstance(module, OCRDataModule) else None
        is_first = split not in self._reported and trainer.is_global_zero
        self._reported.add(split)
        if is_first and isinstance(dataset, PageDataset) and dataset.cache is not None:
            store = dataset.cache.store
            limit, setting = store.limit
            room = f"{format_bytes(store.used_bytes())} of {format_bytes(limit)}, {setting}" if limit else setting
            line = f"{split}: pages are kept in {store.folder} ({room})"
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self._validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        module = getattr(trainer, "datamodule", None)
        for split in ("train", "val") if self._validated else ("train",):
            dataset = module.datasets.get(split) if isinstance(module, OCRDataModule) else None
            if isinstance(dataset, PageDataset):
                counts = _counts_of_all_ranks(dataset.ledger, trainer, pl_module)
                if trainer.is_global_zero and counts != self._latest.get(split):
                    self._latest[split] = counts
                    line = f"{split}: {describe(dataset, counts)}"
                    self.console.print(Text(line), soft_wrap=True)
        self._validated = False


def describe(dataset: PageDataset, counts: dict[str, int]) -> str:
    """A summary of the pages of an epoch."""
    parts = [f"{counts['seen']} pages"]
    if dataset.cache is not None:
        hits, misses, invalid = (counts[f"cache_{name}"] for name in ("hits", "misses", "invalid"))
        parts.append(f"cache {hits} hits, {misses} misses, {invalid} invalid")
        if dataset.cache.stopped:
            parts.append(f"nothing more is kept: {dataset.cache.stopped}")
    if counts["maps_stale"]:
        parts.append(f"{counts['maps_stale']} stale maps redrawn")
    for name, what in POLYGON_WORDS.items():
        if counts[name]:
            parts.append(f"{counts[name]} polygons {what}")
    parts += [
        f"{counts[name]} {name}{_first_files(dataset, name)}" for name in ("recovered", "skipped") if counts[name]
    ]
    return "; ".join(parts)


def _first_files(dataset: PageDataset, count: str) -> str:
    files = dataset.ledger.files(count)
    more = ", ..." if len(files) > NAMED_FILES else ""
    return f" ({', '.join(files[:NAMED_FILES])}{more})" if files else ""


def _counts_of_all_ranks(ledger: Ledger, trainer: lightning.Trainer, pl_module: Any) -> dict[str, int]:
    totals = ledger.totals()
    if trainer.world_size == 1:
        return totals
    sums = trainer.strategy.reduce(torch.tensor(list(totals.values()), device=pl_module.device), reduce_op="sum")
    counts = dict(zip(totals, sums.tolist(), strict=True))
    # Every rank counts the same pages that could not become samples.
    return counts | {"skipped": counts["skipped"] - (trainer.world_size - 1) * len(ledger.left_out)}
