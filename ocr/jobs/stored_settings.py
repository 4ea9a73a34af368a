"""A detector file brings its settings: they replace the defaults of the config, and the command line replaces them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.text import Text

from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.detector_settings import page_stages
from ocr.jobs.recipe import AUTO
from ocr.models.load import StoredDetector, read_detector
from ocr.models.packaged import named_detector
from ocr.models.settings import PARTS, SQUARE, DetectorSettings

NODES = {
    "architecture": "model",
    "letterbox": "transforms.letterbox",
    "normalization": "transforms.normalization",
    "targets": "targets",
    "boxes": "boxes",
}
"""Where a config has the parts of DetectorSettings."""
PARTS_OF_WEIGHTS = ("architecture", "normalization")
"""What new training keeps; the rest is up to its recipe."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What the user typed, and the config without it."""

    overrides: Sequence[str]
    defaults: DictConfig

    def typed(self, key: str) -> bool:
        """Whether the setting, or a group that holds it, was typed: `model=lite` for `model.channels`."""
        keys = (override.partition("=")[0].lstrip("+~").partition("@")[0] for override in self.overrides)
        return any(key == typed or key.startswith(f"{typed}.") for typed in keys)

    @property
    def groups(self) -> str:
        """The choices of groups: `experiment=receipts`."""
        return " ".join(item for item in self.overrides if (CONFIGS / item.partition("=")[0].lstrip("+")).is_dir())


def chosen_file(config: DictConfig) -> tuple[Path, str] | None:
    """The detector file of a config and the setting that names it; None if there is none.

    `resume` comes first and `weights` last: an experiment may have weights that a resumed run has learnt from already.
    """
    for setting in ("resume", "checkpoint_path"):
        if config.get(setting) is not None:
            return Path(str(config[setting])), setting  # A file may be named 2024.
    weights = config.get("weights")
    if weights is None:
        return None
    return named_detector(str(weights)), "weights"


def name_of_detector(config: DictConfig) -> str:
    """How a job names the detector that it has scored: its file, or `weights=glyphfeed`."""
    path = next((config[setting] for setting in ("resume", "checkpoint_path") if config.get(setting) is not None), None)
    return f"weights={config.weights}" if path is None else str(path)


def read_chosen(config: DictConfig) -> StoredDetector | None:
    """What the detector file of a config holds."""
    chosen = chosen_file(config)
    return None if chosen is None else read_detector(*chosen)


def with_stored_settings(config: DictConfig, command: CommandLine, console: Console, training: bool) -> DictConfig:
    """The config with the settings of its detector file, if it has one; what the command line changes is told."""
    stored = read_chosen(config)
    if stored is None:
        return config
    config = config.copy()
    # They would be read, or downloaded, and replaced.
    OmegaConf.update(config, "model.pretrained", False)
    OmegaConf.update(config, "model.weights", None)
    # An older file has its architecture at most, and was trained on square pages.
    settings = stored.settings or DetectorSettings(stored.architecture or {}, letterbox={"shape": SQUARE})
    parts = PARTS_OF_WEIGHTS if training else PARTS
    told = [line for part in parts for line in _adopt(config, settings, part, command)]
    if stored.settings is not None and not training:
        told += _other_pages(config, settings, " ".join(told))
    for line in (describe(stored), *told):
        console.print(Text(line), soft_wrap=True)
    return config


def describe(stored: StoredDetector) -> str:
    """One line about a detector file."""
    settings = stored.settings
    if settings is None:
        return (
            f"{stored.source} is older than the settings in checkpoints: pages (square) and boxes are of this command"
        )
    origin = settings.provenance
    parts = [str(settings.architecture.get("encoder")), f"pages of {settings.page_size} ({settings.page_shape})"]
    parts += [f"{origin.steps} steps"] if origin.steps is not None else []
    parts += [f"H-mean {origin.scores['hmean']:.4f} in validation"] if "hmean" in origin.scores else []
    return f"{stored.source}: {', '.join(parts)}"


def _adopt(config: DictConfig, settings: DetectorSettings, part: str, command: CommandLine) -> list[str]:
    """Set one part of the settings; returns what is told."""
    node = OmegaConf.select(config, NODES[part])
    if node is None:
        return []
    # Not every argument is in the config; a newer file may have some that this version does not.
    defaults = {name: item.default for name, item in inspect.signature(get_object(node._target_)).parameters.items()}
    lines = []
    for name, value in getattr(settings, part).items():
        key = f"{NODES[part]}.{name}"
        if name in defaults and (here := _value(config, key, defaults[name])) != value:
            by_group = here not in (_value(command.defaults, key, defaults[name]), AUTO)
            lines.append(_adopt_value(config, part, key, here, value, command, by_group))
    return [line for line in lines if line]


def _adopt_value(
    config: DictConfig, part: str, key: str, here: Any, value: Any, command: CommandLine, by_group: bool
) -> str | None:
    """Set one setting unless the command line has it; `by_group`: in a file that it chooses, such as an experiment."""
    origin = _origin(config, key)
    has = "the checkpoint has" if part == "boxes" else "the checkpoint was trained with"
    if (command.typed(key) or command.typed(origin)) and here != AUTO:
        # Of another architecture the weights do not fit, which loading them says.
        return None if part == "architecture" else f"{origin}={here} from the command line; {has} {value}"
    if by_group and part != "architecture":
        return f"{origin}={here} from {command.groups}; {has} {value}"
    OmegaConf.update(config, origin, value, force_add=True)
    return f"{origin}={value} from the checkpoint, in place of {here} from {command.groups}" if by_group else None


def _other_pages(config: DictConfig, settings: DetectorSettings, told: str) -> list[str]:
    """Differences of the pages that no setting of `transforms` explains: a list of stages of the user's own."""
    page = page_stages(config)
    if page is None:
        return [f"transforms.val_transform has other stages; the checkpoint was trained with {settings.letterbox}"]
    made = {"letterbox": asdict(page[0]), "normalization": asdict(page[1])}
    return [
        f"transforms.val_transform has {name}={_plain(made[part][name])}; the checkpoint was trained with {value}"
        for part in made
        for name, value in getattr(settings, part).items()
        if name in made[part] and _plain(made[part][name]) != value and f".{name}=" not in told
    ]


def _value(config: DictConfig, key: str, default: Any) -> Any:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent)
    return _plain(node[name] if node is not None and name in node else default)


def _plain(value: Any) -> Any:
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    return list(value) if isinstance(value, tuple) else value


def _origin(config: DictConfig, key: str) -> str:
    """The setting that another one points to: `transforms.size` for `transforms.letterbox.size`."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent)._get_node(name, validate_access=False)
    text = str(node._value()) if node is not None and node._is_interpolation() else ""
    target = text.removeprefix("${").removesuffix("}")
    # A part that points to another one, such as the ratio of boxes to that of targets, has a value of its own.
    is_setting = text == f"${{{target}}}" and OmegaConf.select(config, target) is not None
    in_a_part = any(target.startswith(f"{node}.") for node in NODES.values())
    return target if is_setting and not in_a_part else key
