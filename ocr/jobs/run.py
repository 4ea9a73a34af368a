"""Run a job with the config that its command line composes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from ocr.exit_status import one_line_errors
from ocr.jobs.compose import complete, explained_errors, own_configs_first
from ocr.jobs.config_folders import CONFIGS, choose_config_dir
from ocr.jobs.recipe import settle
from ocr.jobs.settings import JOBS, check_settings
from ocr.jobs.threads import share_cores

Job = Callable[[DictConfig, Console], object]
SCORING = ("test", "inspect")
"""Jobs that train nothing."""
UNHELPFUL_WARNINGS = (  # Lightning's: they ask for more workers than there are cores, and for hooks we do not need.
    "many workers",
    "smaller than the logging interval",
    "on_after_batch_transfer",
    "treespec, LeafSpec",
)


def run_job(name: str, job: Job, when_interrupted: str = "interrupted") -> None:
    """Compose `configs/<name>.yaml` with the KEY=VALUE of the command line, and run `job` with it.

    A job that returns a number other than 0 ends with it as the exit status.
    """
    # Without it Hydra prints errors itself, and exits with status 1.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")

    def run(config: DictConfig) -> None:
        # Inside Hydra too: it prints the overrides before it passes an error on.
        with one_line_errors(when_interrupted), explained_errors():
            _silence_lightning()
            running, console = HydraConfig.get(), Console()
            config = complete(config, name, running.overrides.task, console)
            share_cores(config)
            status = job(settle(config, console, training=name not in SCORING), console)
        if isinstance(status, int) and status:
            sys.exit(status)

    run.__module__ = name  # Hydra names the log after it: train.log.
    try:
        with one_line_errors(when_interrupted), own_configs_first(), explained_errors():
            _take_config_dir()
            if name == "train":
                _continue_in_folder()
            hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=name)(run)()
    finally:
        choose_config_dir(None)


def config_for(checkpoint: str, console: Console) -> DictConfig:
    """The config of this command line for another checkpoint, with the settings that the file has."""
    from ocr.jobs.stored_settings import CommandLine, with_stored_settings

    running = HydraConfig.get()
    typed = [word for word in running.overrides.task if word.partition("=")[0] != "checkpoint_path"]
    typed.append(quoted_override("checkpoint_path", checkpoint))
    composed = compose(running.job.config_name, typed)
    check_settings(composed, JOBS[str(running.job.config_name)])
    command = CommandLine(typed, compose(running.job.config_name))
    config = with_stored_settings(composed, command, console, training=False)
    return settle(config, console, training=False)


def quoted_override(key: str, value: str) -> str:
    """An override whose value may have characters that mean something to Hydra.

    >>> quoted_override("checkpoint_path", "epoch=3.ckpt")
    "checkpoint_path='epoch=3.ckpt'"
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{escaped}'"


def _take_config_dir() -> None:
    """Use `--config-dir DIR`, and put it first: Hydra refuses options between two KEY=VALUE."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    known, others = parser.parse_known_args(sys.argv[1:])
    if choose_config_dir(known.config_dir):
        # Distributed training starts the other ranks with the same arguments.
        sys.argv[1:] = ["--config-dir", str(known.config_dir), *others]


def _continue_in_folder() -> None:
    """A run that is resumed goes on in its own folder; what Hydra would write there is written by `resumed_config`."""
    typed = dict(word.partition("=")[::2] for word in sys.argv[1:])
    path = typed.get("resume", "").strip("'\"")
    folder = Path(path).absolute().parent.parent
    if Path(path).is_file() and (folder / ".hydra").is_dir() and "hydra.run.dir" not in typed:
        sys.argv += [quoted_override("hydra.run.dir", str(folder)), "hydra.output_subdir=null"]


def _silence_lightning() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # It lists the devices that are absent.
    for text in UNHELPFUL_WARNINGS:
        warnings.filterwarnings("ignore", message=f".*{text}")
