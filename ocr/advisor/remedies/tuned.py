"""The config that `ocr advise --apply` writes: the data group that was measured, with the best settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from ocr.atomic import replacing
from ocr.errors import ConfigError

TUNABLE = ("data.", "decode.", "transforms.normalize", "trainer.precision", "use_dali")
COMMENT_COLUMN = 36


def base_group(given: Sequence[str]) -> str:
    """The data group of a user's overrides.

    >>> base_group(["model=lite", "data=webdataset"]), base_group([])
    ('webdataset', 'base')
    """
    base = next((text.partition("=")[2] for text in given if text.startswith("data=")), "base")
    if base == "tuned":
        raise ConfigError("--apply would make data/tuned.yaml include itself. Give the group it adapts: data=base")
    return base


def write_tuned(overrides: Sequence[str], base: str, command: str, folder: Path = Path("configs", "data")) -> Path:
    """Write tuned.yaml into a folder of data groups: the group `base` with the best settings. Returns its path."""
    kept = [text for text in overrides if text.startswith(TUNABLE)]
    settings = OmegaConf.to_yaml(OmegaConf.from_dotlist(kept)).splitlines() if kept else []
    lines = [
        "# @package _global_",
        f"# Written by: {command}",
        "defaults:",
        f"  - {base}".ljust(COMMENT_COLUMN) + f"# the data group that was measured: data={base}",
        *(line.ljust(COMMENT_COLUMN) + "# found by ocr advise" for line in settings),
    ]
    path = folder / "tuned.yaml"
    with replacing(path) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
    return path
