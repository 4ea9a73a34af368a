"""Datasets from a config."""

from __future__ import annotations

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from ocr.errors import ConfigError, GlyphFeedError, near_names


def build_dataset(config: DictConfig, split: str) -> Any:
    """The dataset of `datasets.<split>_dataset`."""
    name = f"{split}_dataset"
    if not config.get("datasets"):
        raise ConfigError(
            "datasets is null or missing. Describe the splits as in configs/data/base.yaml", setting="datasets"
        )
    if name not in config.datasets:
        raise ConfigError(
            f"datasets.{name} is not in the config. {near_names(name, list(config.datasets))}",
            setting=f"datasets.{name}",
        )
    if config.datasets[name] is None:
        raise ConfigError(
            f"datasets.{name} is null, but {split} is needed. Describe the split as in "
            f"configs/data/base.yaml, or leave it out (splits=[...] of scripts/preprocess_maps.py)",
            setting=f"datasets.{name}",
        )
    return make(config.datasets[name], f"datasets.{name}")


def make(node: DictConfig, name: str, **settings: Any) -> Any:
    """Instantiate a node of the config; a GlyphFeedError keeps its type and gets the node's name."""
    try:
        return instantiate(node, **settings)
    except InstantiationException as error:
        if isinstance(error.__cause__, GlyphFeedError):
            cause = error.__cause__
            problem = f"{name}: {cause}"
            raise type(cause)(problem, setting=cause.setting, value=cause.value, path=cause.path) from error
        raise ConfigError(f"{name} cannot be instantiated ({error})", setting=name) from error
