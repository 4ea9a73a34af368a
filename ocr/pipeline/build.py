"""From config to datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ocr.errors import ConfigError, GlyphFeedError, near_names

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def compose_training(overrides: Sequence[str], command: str) -> DictConfig:
    """The config that `ocr train` has with these overrides, for another command."""
    if not (CONFIGS / "train.yaml").is_file():
        raise ConfigError(
            f"{CONFIGS / 'train.yaml'} is not there: `{command}` needs a checkout of the repository, installed editable"
        )
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return compose("train", list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{' '.join(overrides)}: {error}") from error


def build_dataset(config: DictConfig, split: str) -> Any:
    """The dataset of `datasets.<split>_dataset`."""
    name = f"{split}_dataset"
    if not config.get("datasets"):
        raise ConfigError("datasets is null or missing. Describe the splits as in configs/data/base.yaml")
    if name not in config.datasets:
        raise ConfigError(f"datasets.{name} is not in the config: {near_names(name, list(config.datasets))}")
    if config.datasets[name] is None:
        raise ConfigError(
            f"datasets.{name} is null, and {split} is asked for. Describe the split as in "
            f"configs/data/base.yaml, or do not ask for it (splits=[...] of scripts/preprocess_maps.py)"
        )
    return make(config.datasets[name], f"datasets.{name}")


def make(node: DictConfig, name: str, **settings: Any) -> Any:
    """Instantiate a node of the config; an error of ours keeps its type and gets the node's name."""
    try:
        return instantiate(node, **settings)
    except InstantiationException as error:
        if isinstance(error.__cause__, GlyphFeedError):
            raise type(error.__cause__)(f"{name}: {error.__cause__}") from error
        raise ConfigError(f"{name} cannot be made: {error}") from error
