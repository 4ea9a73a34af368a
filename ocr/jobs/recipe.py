"""Settings that are `auto` become numbers: derived from the training pages by a rule, shown, saved with the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from ocr.atomic import replacing
from ocr.checks import POSITIVE, SIDE, Range, check_numbers
from ocr.errors import ConfigError
from ocr.pipeline.sample import STRIDE

if TYPE_CHECKING:  # Torch takes seconds to import, and most configs have no such setting.
    from ocr.datasets.page_statistics import PageStatistics

AUTO = "auto"
PREDICTED_WITH = ("transforms.size", "targets.shrink_ratio")
"""What prediction needs of them; the others are for training alone."""
Derived = tuple[Any, str]
"""A value, and where it is from."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The rule, with the numbers that it was measured with; docs/training.md has the tables."""

    text_height: float = 11.0
    """Pixels that the 10th percentile of the text's heights gets."""
    smallest: int = 640
    largest: int = 1280
    """Bounds of the page's side: a page of 1280 has 1.8 times the pixels of one of 960."""
    neighbour_share: float = 0.2
    """From this share of text with other text close behind it, the unit is the word: lines have 0.03, words 0.4."""
    line_shrink_ratio: float = 0.6
    word_shrink_ratio: float = 0.4
    """Kernels of words lie close together, so they are made smaller."""
    steps: int = 1300
    """Training steps: as many as experiment=receipts takes on 140 pages."""
    min_epochs: int = 10
    """Passes over so many pages that there are more steps."""
    validations: int = 15

    def __post_init__(self) -> None:
        inside = Range(0, 1, above=True, below=True)
        whole = {"smallest": SIDE, "largest": SIDE, "steps": SIDE, "min_epochs": SIDE, "validations": SIDE}
        check_numbers(self, text_height=POSITIVE, neighbour_share=inside, **whole)
        check_numbers(self, line_shrink_ratio=inside, word_shrink_ratio=inside)
        if self.smallest > self.largest:
            raise ConfigError(
                f"{self!r}: smallest <= largest must hold", setting="Recipe.smallest", value=self.smallest
            )

    def size(self, pages: PageStatistics) -> Derived:
        wanted = self.text_height / pages.text_height
        side = min(max(-(-wanted // STRIDE) * STRIDE, self.smallest), self.largest)
        height = pages.text_height * side
        return int(side), f"lowest tenth of text: {height:.0f} pixels"

    def window(self, size: int) -> Derived:
        return max(STRIDE, size // 2 // STRIDE * STRIDE), "half of the page"

    def shrink_ratio(self, pages: PageStatistics) -> Derived:
        are_words = pages.neighbour_share >= self.neighbour_share
        share = f"{pages.neighbour_share:.0%} are close to the next"
        return (self.word_shrink_ratio, f"words: {share}") if are_words else (self.line_shrink_ratio, f"lines: {share}")

    def saturation(self, pages: PageStatistics) -> Derived:
        return (0.3 if pages.colour_share else 0.0), f"{pages.colour_share:.0%} of the pages have colours"

    def max_epochs(self, pages: PageStatistics, batch_size: int) -> Derived:
        steps = max(1, pages.pages // batch_size)
        epochs = max(self.min_epochs, -(-self.steps // steps))
        return epochs, f"{epochs * steps} steps of {batch_size} windows"

    def check_val_every_n_epoch(self, max_epochs: int) -> Derived:
        every = max(1, max_epochs // self.validations)
        return every, f"about {self.validations} validations"


RULES: dict[str, Callable[[Recipe, PageStatistics, DictConfig], Derived]] = {
    "transforms.size": lambda recipe, pages, config: recipe.size(pages),
    "transforms.window": lambda recipe, pages, config: recipe.window(config.transforms.size),
    "transforms.saturation": lambda recipe, pages, config: recipe.saturation(pages),
    "targets.shrink_ratio": lambda recipe, pages, config: recipe.shrink_ratio(pages),
    "trainer.max_epochs": lambda recipe, pages, config: recipe.max_epochs(
        pages, config.dataloaders.train_dataloader.batch_size
    ),
    "trainer.check_val_every_n_epoch": lambda recipe, pages, config: recipe.check_val_every_n_epoch(
        config.trainer.max_epochs
    ),
}
"""In an order in which each may use those before it."""


def settle(config: DictConfig, console: Console | None = None, training: bool = True) -> DictConfig:
    """The config with a number for every `auto` of RULES; the very config if there is none.

    They are shown on `console`, and saved in the run's folder. Without `training`, only what prediction needs is
    derived.
    """
    open_keys = [key for key in RULES if OmegaConf.select(config, key) == AUTO]
    if not training:
        open_keys = [key for key in open_keys if key in PREDICTED_WITH]
    if not open_keys:
        return config
    from ocr.datasets.build import make

    recipe: Recipe = make(config.recipe, "recipe") if config.get("recipe") else Recipe()
    pages = _measure(config, open_keys[0])
    settled, reasons = config.copy(), {}
    for key in open_keys:
        value, reasons[key] = RULES[key](recipe, pages, settled)
        OmegaConf.update(settled, key, value)
    if console is not None and not os.environ.get("LOCAL_RANK", "0").strip("0"):  # Other ranks derive the same.
        _show(console, settled, reasons, pages)
        _save(settled)
    return settled


def _measure(config: DictConfig, key: str) -> PageStatistics:
    """The training pages, opened without transforms, which depend on what is to be derived."""
    from ocr.datasets.build import build_dataset
    from ocr.datasets.page_dataset import PageDataset
    from ocr.datasets.page_statistics import measure_pages

    empty = {"_target_": "ocr.datasets.DBTransforms", "transforms": []}
    kept = ("preload_everything", "preload_images", "preload_maps", "prenormalize_images", "cache_transformed_tensors")
    plain = {"transform": empty, "targets": None, "cache": "off", **dict.fromkeys(kept, False)}
    opened = config.copy()
    if node := OmegaConf.select(opened, "datasets.train_dataset"):
        node.update({name: value for name, value in plain.items() if name in node})
    about = f"{key}=auto is derived from the original training pages"
    try:
        dataset = build_dataset(opened, "train")
    except ConfigError as error:
        raise ConfigError(
            f"{about}: {error}. Or give a number for {key}", setting=key, value=AUTO, path=error.path
        ) from error
    if not isinstance(dataset, PageDataset):
        raise ConfigError(
            f"{about}, and {type(dataset).__name__} has them in one order only. Give a number", setting=key, value=AUTO
        )
    return measure_pages(dataset)


def _show(console: Console, config: DictConfig, reasons: dict[str, str], pages: PageStatistics) -> None:
    title = f"derived from {pages.measured} of {pages.pages} training pages, {pages.words_per_page:.0f} boxes each"
    table = Table(title=title, title_justify="left")
    for column, justify in (("setting", "left"), ("value", "right"), ("because", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for key, reason in reasons.items():
        table.add_row(key, f"{OmegaConf.select(config, key):g}", reason)
    console.print(table)


def _save(config: DictConfig) -> None:
    """Write the numbers into the config that Hydra saved in the run's folder before they were known."""
    if not HydraConfig.initialized():
        return
    hydra = HydraConfig.get()
    file = Path(hydra.runtime.output_dir) / str(hydra.output_subdir) / "config.yaml"
    if file.is_file():
        with replacing(file) as stream:
            stream.write(OmegaConf.to_yaml(config).encode())
