"""The config that `apply=true` writes: the one that was measured, with the best settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ocr.atomic import replacing
from ocr.errors import ConfigError
from ocr.jobs.config_folders import chosen_folder

COMMENT_COLUMN = 36


def apply_changes(
    overrides: Sequence[str], choices: dict[str, str | None], compose: Callable[[list[str]], DictConfig], command: str
) -> tuple[Path, str]:
    """Write `data/tuned.yaml`, or `experiment/tuned.yaml` if the experiment has a word of its own on these settings.

    Without overrides the file changes nothing, so that data=tuned can be used whatever the advice was. `compose` makes
    the config of the command line with other choices. Returns the file, and the override that uses it.
    """
    for group in ("data", "experiment"):
        base = choices.get(group)
        if base == "tuned":
            raise ConfigError(
                f"apply=true would make {group}/tuned.yaml include itself. Set {group}= to the config that it adapts",
                setting=group,
                value=base,
            )
        if base is None:
            continue
        path = write_tuned(overrides, group, base, command)
        if _has_effect(compose([f"{group}=tuned"]), overrides):
            return path, f"{group}=tuned"
        path.unlink()
    raise ConfigError(
        f"apply=true, but {' '.join(overrides)} has no effect in a config. Set it on the command line",
        setting="apply",
        value=True,
    )


def write_tuned(overrides: Sequence[str], group: str, base: str, command: str) -> Path:
    """Write tuned.yaml into the user's folder of a group: its config `base` with these settings."""
    settings = OmegaConf.to_yaml(OmegaConf.from_dotlist(list(overrides))).splitlines() if overrides else []
    lines = [
        "# @package _global_",
        f"# Written by: {command}",
        "defaults:",
        f"  - {base}".ljust(COMMENT_COLUMN) + f"# what was measured: {group}={base}",
        "  - _self_",
        *(line.ljust(COMMENT_COLUMN) + "# found by glyphfeed advise" for line in settings),
    ]
    path = chosen_folder() / group / "tuned.yaml"
    with replacing(path) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
    return path


def _has_effect(config: DictConfig, overrides: Sequence[str]) -> bool:
    wanted = OmegaConf.from_dotlist(list(overrides))
    return all(
        OmegaConf.select(config, key) == OmegaConf.select(wanted, key)
        for key in (override.split("=", 1)[0] for override in overrides)
    )
