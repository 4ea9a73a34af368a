"""The config that `ocr advise --apply` writes: the data group that was measured, with the best settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ocr.atomic import replacing
from ocr.errors import ConfigError

TUNABLE = ("data.", "decode.", "transforms.normalize", "trainer.precision", "use_dali")


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
    tree: dict[str, Any] = {}
    for text in overrides:
        if not text.startswith(TUNABLE):
            continue
        name, _, value = text.partition("=")
        *parents, last = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{text}: {parent} is a value already")
        node[last] = value
    head = f"# @package _global_\n# Written by: {command}\ndefaults:\n"
    head += f"  - {base}".ljust(36) + f"# the data group that was measured: data={base}\n"
    path = folder / "tuned.yaml"
    with replacing(path) as stream:
        stream.write((head + "".join(_lines(tree, 0))).encode())
    return path


def _lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for name, value in tree.items():
        indent = "  " * depth
        if isinstance(value, dict):
            lines.append("\n" * (not depth) + f"{indent}{name}:".ljust(36) + "# measured as the best\n")
            lines += _lines(value, depth + 1)
        else:
            lines.append(f"{indent}{name}: {value}".ljust(36) + "# by ocr advise\n")
    return lines
