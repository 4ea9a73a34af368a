"""Fill the caches of a training config ahead of the training."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from ocr.cache.cache import Cache
from ocr.cache.folder import disk_bytes
from ocr.datasets.build import build_dataset
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.jobs.compose import compose_training
from ocr.tools.cache.report import PLAIN, share
from ocr.tools.executor import LazyTasks, check_executor, run_tasks, started
from ocr.units import format_bytes

CHUNK = 8
"""Pages per chunk of a Ray worker; a page takes about 10 ms."""


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building the cache of one split."""

    split: str
    folder: Path
    pages: int
    hits: int
    ready: int
    disk_bytes: int
    seconds: float

    @property
    def misses(self) -> int:
        """Pages that were not in the cache."""
        return self.pages - self.hits


def build(
    overrides: Sequence[str], splits: Sequence[str], workers: int | None, folder: Path | None, executor: str = "local"
) -> int:
    """Fill the cache of one split after the other, with a progress bar; exit status 130 if interrupted."""
    check_executor(executor, workers)
    config, console = compose_training(overrides), Console()
    if folder is not None:
        config.cache.folder = str(folder)
    try:
        with started(executor, workers):
            for split in splits:
                if config.datasets and config.datasets.get(f"{split}_dataset", "") is None:
                    console.print(f"{escape(split)}: left out, datasets.{escape(split)}_dataset is null", **PLAIN)
                else:
                    _print_built(_build(config, split, workers, executor), console)
        return 0
    except KeyboardInterrupt:
        console.print(
            "interrupted: finished pages stay in the cache; the same command continues with the rest", **PLAIN
        )
    return 130


@dataclass(frozen=True, slots=True)
class KeepSample:
    """Puts a sample into the cache of a split; each process builds the dataset once, from its settings."""

    split: str
    settings: str
    """`datasets.<split>_dataset` as YAML, fully resolved."""
    run: str
    """A worker that outlives a run must not reuse its dataset, whose cache may have been removed."""

    def __call__(self, index: int) -> str:
        return str(self.dataset.keep(index))

    @property
    def dataset(self) -> Any:
        """The dataset of this process."""
        return _open_dataset(self.split, self.settings, self.run)


@lru_cache(maxsize=1)
def _open_dataset(split: str, settings: str, run: str) -> Any:
    return build_dataset(OmegaConf.create({"datasets": {f"{split}_dataset": OmegaConf.create(settings)}}), split)


def _build(config: DictConfig, split: str, workers: int | None, executor: str) -> Built:
    begin = time.perf_counter()
    keep = KeepSample(split, _settings_of(config, split), uuid4().hex)
    dataset = keep.dataset
    if not isinstance(dataset, PageDataset) or dataset.cache is None:
        raise ConfigError(
            f"data.cache={config.data.cache or 'off'} stores nothing of {split}: there is no cache to build. Set "
            "data.cache=auto here and for training, or name the other splits: --split",
            setting="data.cache",
            value=config.data.cache,
        )
    warm_up()
    # From a random start, so that two builds do not process the same pages at the same time.
    first = random.SystemRandom().randrange(len(dataset))
    count = len(dataset)
    indices = LazyTasks(count, lambda at: (first + at) % count)
    outcomes: Counter[str] = Counter()
    silent = not Console().is_terminal
    with closing(run_tasks(keep, indices, executor, workers, chunk=CHUNK)) as made:
        for _, outcome in track(made, escape(f"caching {split}"), total=len(indices), transient=True, disable=silent):
            outcomes[outcome] += 1
    return _summary(split, dataset.cache, outcomes["hit"], time.perf_counter() - begin)


def _settings_of(config: DictConfig, split: str) -> str:
    node = (config.datasets or {}).get(f"{split}_dataset")
    if node is None:
        build_dataset(config, split)  # Says what is missing.
    return OmegaConf.to_yaml(node, resolve=True)


def _print_built(built: Built, console: Console) -> None:
    pages = f"{built.pages} pages in {built.seconds:.1f} s ({built.pages / built.seconds:.0f} pages/s)"
    console.print(f"{escape(built.split)}: {pages}, {built.hits} hits, {built.misses} misses", **PLAIN)
    size = f"covers {share(built.ready, built.pages)}, {format_bytes(built.disk_bytes)}"
    console.print(f"  {size}: {escape(str(built.folder))}", **PLAIN)


def _summary(split: str, cache: Cache, hits: int, seconds: float) -> Built:
    pages, store = len(cache.source), cache.store()
    if store is None:
        return Built(split, cache.handle.root, pages, 0, 0, 0, seconds)
    return Built(split, store.folder, pages, hits, len(store.ready()), disk_bytes(store.folder), seconds)
