"""From configs and overrides to the config of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ocr.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


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
