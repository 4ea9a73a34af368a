"""Fill the caches of a training config ahead of the training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.markup import escape

from ocr.datasets import OCRDataset
from ocr.errors import ConfigError
from ocr.pipeline.build import build_dataset
from ocr.pipeline.cache import Cache
from ocr.pipeline.cache_folder import disk_bytes
from ocr.tools.cache.report import PLAIN, in_bytes, share

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


@dataclass(frozen=True, slots=True)
class Built:
    """What became of the cache of one split."""

    split: str
    folder: Path
    pages: int
    hits: int
    ready: int
    disk_bytes: int
    seconds: float

    @property
    def misses(self) -> int:
        """Pages that had to be made."""
        return self.pages - self.hits


def compose_training(overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """The config that `ocr train` has with these overrides, and the caches in `folder`, if one is given."""
    if not (CONFIGS / "train.yaml").is_file():
        raise ConfigError(
            f"{CONFIGS / 'train.yaml'} is not there: `ocr cache build` needs a checkout of the repository, installed "
            "editable"
        )
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            config = compose("train", list(overrides))
        if folder is not None:
            config.cache.folder = str(folder)
        return config
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{' '.join(overrides)}: {error}") from error


def build(overrides: Sequence[str], splits: Sequence[str], threads: int | None, folder: Path | None) -> int:
    """Fill the cache of one split after the other, with a progress bar; exit status 130 where it is interrupted."""
    config, console = compose_training(overrides, folder), Console()
    try:
        for split in splits:
            if config.datasets and config.datasets.get(f"{split}_dataset", "") is None:
                console.print(f"{escape(split)}: left out, datasets.{escape(split)}_dataset is null", **PLAIN)
            else:
                _print_built(_build(config, split, threads), console)
        return 0
    except KeyboardInterrupt:
        # Not raised on: its traceback would keep the threads alive that are filling the cache.
        console.print("interrupted: what was made stays, and the same command goes on with the rest", **PLAIN)
    return 130


def _build(config: DictConfig, split: str, threads: int | None) -> Built:
    begin = time.perf_counter()
    dataset = build_dataset(config, split)
    if not isinstance(dataset, OCRDataset) or dataset.cache is None:
        raise ConfigError(
            f"data.cache={config.data.cache or 'off'} keeps nothing of {split}: there is no cache to build. Set "
            "data.cache=auto here and for training, or name the other splits: --split"
        )
    outcomes = dataset.fill_cache(f"caching {split}", threads)
    return _summary(split, dataset.cache, outcomes["hit"], time.perf_counter() - begin)


def _print_built(built: Built, console: Console) -> None:
    pages = f"{built.pages} pages in {built.seconds:.1f} s ({built.pages / built.seconds:.0f} pages/s)"
    console.print(f"{escape(built.split)}: {pages}, {built.hits} hits, {built.misses} misses", **PLAIN)
    size = f"covers {share(built.ready, built.pages)}, {in_bytes(built.disk_bytes)}"
    console.print(f"  {size}: {escape(str(built.folder))}", **PLAIN)


def _summary(split: str, cache: Cache, hits: int, seconds: float) -> Built:
    pages, store = len(cache.source), cache.store()
    if store is None:
        return Built(split, cache.root, pages, 0, 0, 0, seconds)
    return Built(split, store.folder, pages, hits, len(store.ready()), disk_bytes(store.folder), seconds)
