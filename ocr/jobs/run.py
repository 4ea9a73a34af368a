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
from omegaconf import DictConfig
from rich.console import Console

from ocr.exit_status import one_line_errors
from ocr.jobs.compose import explained_errors, own_configs_first
from ocr.jobs.config_folders import CONFIGS, choose_config_dir

Job = Callable[[DictConfig, Console], object]
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
            status = job(config, Console())
        if isinstance(status, int) and status:
            sys.exit(status)

    with one_line_errors(when_interrupted), own_configs_first(), explained_errors():
        choose_config_dir(_config_dir(sys.argv[1:]))
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=name)(run)()


def _config_dir(arguments: list[str]) -> Path | None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    folder: Path | None = parser.parse_known_args(arguments)[0].config_dir
    return folder


def _silence_lightning() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # It lists the devices that are absent.
    for text in UNHELPFUL_WARNINGS:
        warnings.filterwarnings("ignore", message=f".*{text}")
