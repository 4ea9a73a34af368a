"""`glyphfeed train resume=CKPT`: the checkpoint has all settings of its run, which continues in its folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.text import Text

from ocr.atomic import replacing
from ocr.errors import ConfigError
from ocr.jobs.config_folders import CONFIGS
from ocr.models.load import SAFETENSORS, read_checkpoint

RUN_KEY = "run"
"""Of a checkpoint: the config, and what was typed."""
CAN_CHANGE = (
    *("hydra", "output_dir", "trainer", "callbacks", "logger", "threads", "cache", "cleval", "compile_model"),
    *("dataset_base_path", "shards_base_path", "teacher", "on_bad_sample", "data.engine", "data.num_workers"),
    *("data.batches_ahead", "dataloaders.train_dataloader.num_workers", "dataloaders.val_dataloader"),
    *("dataloaders.test_dataloader", "datasets.val_dataset", "datasets.test_dataset"),
)
"""Where and how a run works, and how long: not what it learns. docs/training.md lists them."""


def run_to_store(config: DictConfig) -> dict[str, Any]:
    """What a checkpoint keeps of its run, in plain types."""
    typed = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
    if config.resume is not None:
        typed = _all_overrides(_run_of(str(config.resume)), typed)
    return {"config": OmegaConf.to_container(config), "overrides": typed}


def resumed_config(config: DictConfig, typed: Sequence[str], console: Console) -> DictConfig:
    """The config of the run that `resume` names, with what was typed if that can change; ConfigError if it cannot."""
    path = str(config.resume)
    run = _run_of(path)
    resumed = DictConfig(run["config"])
    OmegaConf.set_struct(resumed, True)
    for word in typed:
        key = _key(word)
        if key == "resume" or word in run["overrides"]:
            continue
        given, stored = (OmegaConf.select(one, key) for one in (config, resumed))
        if any(key == free or key.startswith(f"{free}.") for free in CAN_CHANGE):
            OmegaConf.update(resumed, key, given, merge=False, force_add=True)
        elif given is None or given != stored or (CONFIGS / key).is_dir():
            shown = "" if OmegaConf.is_config(stored) else f" {key}={stored}"
            raise ConfigError(
                f"{word}: the run of {path} has other settings{shown}. Leave it out, or start a new run from its "
                f"weights: checkpoint_path={path}",
                setting=key,
                value=given,
                path=path,
            )
    resumed.resume = path
    overrides = _all_overrides(run, typed)
    command = shlex.join(["glyphfeed", "train", *overrides])
    console.print(Text(f"continuing {path}, a run of: {command}"), soft_wrap=True)
    _save(resumed, overrides)
    return resumed


def _run_of(path: str) -> dict[str, Any]:
    if path.endswith(SAFETENSORS):
        raise ConfigError(
            f"resume={path} has weights, but no run to continue: that takes a checkpoint (.ckpt). To start a new run "
            f"from these weights: weights={path}",
            setting="resume",
            path=path,
        )
    run: dict[str, Any] | None = read_checkpoint(Path(path), "resume").get(RUN_KEY)
    if run is None:
        raise ConfigError(
            f"resume={path} has no settings of a run. Start a new run from its weights: checkpoint_path={path}",
            setting="resume",
            path=path,
        )
    return run


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~").partition("@")[0]


def _all_overrides(run: dict[str, Any], typed: Sequence[str]) -> list[str]:
    before: list[str] = run["overrides"]
    return [*before, *(word for word in typed if _key(word) != "resume" and word not in before)]


def _save(config: DictConfig, overrides: list[str]) -> None:
    """In the folder of the run, where Hydra writes what is typed for a new one."""
    if not HydraConfig.initialized() or os.environ.get("LOCAL_RANK", "0").strip("0"):
        return
    folder = Path(HydraConfig.get().runtime.output_dir) / ".hydra"
    for name, text in (("config", OmegaConf.to_yaml(config)), ("overrides", OmegaConf.to_yaml(overrides))):
        with replacing(folder / f"{name}.yaml") as stream:
            stream.write(text.encode())
