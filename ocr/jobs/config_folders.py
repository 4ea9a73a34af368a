"""Where configs are found: `--config-dir DIR`, then `configs/` in the working directory, then those of the package."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import typer

from ocr.errors import ConfigError

log = logging.getLogger(__name__)
CONFIGS = Path(__file__).resolve().parents[1] / "configs"
"""The package's own; nothing writes there."""
_chosen: list[Path] = []


def choose_config_dir(folder: Path | None) -> Path | None:
    """Let the configs of a folder come first in this process; None: no such folder."""
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            f"--config-dir {folder} is not a folder. Set a folder with configs, such as experiment/mine.yaml",
            setting="--config-dir",
            path=folder,
        )
    _chosen[:] = [folder.absolute()] if folder is not None else []
    return folder


ConfigDir = Annotated[
    Path | None,
    typer.Option(
        "--config-dir",
        metavar="DIR",
        callback=choose_config_dir,
        help="Folder of your own configs; ./configs is used without it.",
    ),
]


def chosen_folder() -> Path:
    """Where a config of the user's own is written: `--config-dir`, or `configs` in the working directory."""
    return _chosen[0] if _chosen else Path("configs")


def own_folders() -> list[Path]:
    """The user's folders of configs, the first has precedence; in a checkout `configs` is the package's own."""
    folders = [*_chosen, Path.cwd() / "configs"]
    own = [folder for folder in folders if folder.is_dir() and folder.resolve() != CONFIGS]
    for folder in own:
        _report_replaced(folder)
    return own


@lru_cache
def _report_replaced(folder: Path) -> None:
    """A file with the name of one of the package's replaces it whole, also if that was not intended."""
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.yaml"))
    if replaced := [name for name in names if (CONFIGS / name).is_file()]:
        log.warning("configs of %s replace those of the package: %s", folder, ", ".join(replaced))
