"""The config that `ocr advise --apply` writes: the group that was measured, with the best settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from ocr.atomic import replacing
from ocr.errors import ConfigError

PLACEHOLDERS = ("data=", "shards_base_path=")
"""Overrides that name files which the user has yet to write."""
COMMENT_COLUMN = 36


def base_group(given: Sequence[str]) -> tuple[str, str]:
    """The group of a user's overrides that a config can adapt: the experiment, which comes last, or the data.

    >>> base_group(["model=lite", "data=webdataset"]), base_group([]), base_group(["experiment=receipts"])
    (('data', 'webdataset'), ('data', 'base'), ('experiment', 'receipts'))
    """
    chosen = dict(text.split("=", 1) for text in ("data=base", *given) if text.startswith(("data=", "experiment=")))
    group = "experiment" if "experiment" in chosen else "data"
    if chosen[group] == "tuned":
        raise ConfigError(
            f"--apply would make {group}/tuned.yaml include itself. Give the one that it adapts",
            setting=group,
            value="tuned",
        )
    return group, chosen[group]


def write_tuned(overrides: Sequence[str], base: tuple[str, str], command: str, configs: Path = Path("configs")) -> Path:
    """Write tuned.yaml into the folder of a group: its config `base` with the best settings. Returns the path."""
    (group, name), kept = base, [text for text in overrides if not text.startswith(PLACEHOLDERS)]
    settings = OmegaConf.to_yaml(OmegaConf.from_dotlist(kept)).splitlines() if kept else []
    lines = [
        "# @package _global_",
        f"# Written by: {command}",
        "defaults:",
        f"  - {name}".ljust(COMMENT_COLUMN) + f"# what was measured: {group}={name}",
        *(line.ljust(COMMENT_COLUMN) + "# found by ocr advise" for line in settings),
    ]
    path = configs / group / "tuned.yaml"
    with replacing(path) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
    return path
