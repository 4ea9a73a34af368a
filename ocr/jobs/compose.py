"""From configs and overrides to the config of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from ocr.errors import ConfigError, near_names
from ocr.jobs.config_folders import CONFIGS, own_folders
from ocr.jobs.recipe import settle
from ocr.jobs.settings import JOBS, check_settings

MAX_ELSEWHERE = 3
"""Settings of the same name in other groups that an error lists."""


def compose_training(overrides: Sequence[str]) -> DictConfig:
    """The config that `glyphfeed train` has with these overrides, for another command."""
    with own_configs_first(), explained_errors(), initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", without_null_groups(overrides))
        return settle(complete(config, "train", overrides, Console(quiet=True)))


def without_null_groups(overrides: Sequence[str]) -> list[str]:
    """The overrides, with `logger=null` as Hydra writes it: it refuses null for a group with a list of choices."""
    return [f"{word[:-4]}[]" if word in ("logger=null", "experiment=null") else word for word in overrides]


def complete(config: DictConfig, name: str, overrides: Sequence[str], console: Console) -> DictConfig:
    """The config of a job, checked, with the settings of its detector file and of its teacher, if it has them.

    Hydra must be ready to compose the config without the overrides.
    """
    refuse_empty_groups(config, name, overrides)
    check_settings(config, JOBS[name])
    if all(config.get(setting) is None for setting in ("resume", "checkpoint_path", "weights", "teacher")):
        return config
    # Torch takes seconds to import, and a job without a detector does not need it.
    if name == "train" and config.resume is not None:
        from ocr.jobs.resumed_run import resumed_config

        return resumed_config(config, overrides, console)
    training = name in ("train", "advise")
    from ocr.jobs.stored_settings import CommandLine, with_stored_settings
    from ocr.jobs.teacher import with_teacher_settings

    command = CommandLine(list(overrides), compose(name))
    config = with_stored_settings(config, command, console, training)
    return with_teacher_settings(config, command, console) if training else config


def refuse_empty_groups(config: DictConfig, name: str, overrides: Sequence[str]) -> None:
    """Raise if the command line sets a whole group of settings of the config `name` to null: `threads=null`."""
    typed = {override.partition("=")[0] for override in overrides}
    empty = [key for key in typed if key in config and config[key] is None]
    defaults = compose(name) if empty else DictConfig({})
    for key in empty:
        if isinstance(defaults[key], DictConfig):
            keys = ", ".join(f"{key}.{setting}" for setting in defaults[key])
            raise ConfigError(
                f"{key}=null: this is a group of settings. Leave it as it is, or set some of {keys}",
                setting=key,
                value=None,
            )


class OwnConfigs(SearchPathPlugin):
    """Puts the user's folders of configs before the package's; Hydra itself puts `--config-dir` behind it."""

    active = False

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in own_folders() if self.active else []:
            search_path.prepend("own", f"file://{folder}", anchor="main")


@contextmanager
def own_configs_first() -> Iterator[None]:
    """What Hydra composes meanwhile may come from the user's folders of configs."""
    Plugins.instance().register(OwnConfigs)
    OwnConfigs.active = True
    try:
        yield
    finally:
        OwnConfigs.active = False


@contextmanager
def explained_errors() -> Iterator[None]:
    """Hydra's errors as a ConfigError of one line that names the setting and those that are near."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error) from error


def explain(error: Exception) -> ConfigError:
    """An error of Hydra or OmegaConf in one line, without search paths."""
    cause = error.__cause__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return ConfigError(
            f"{group}={name} is unknown. {near_names(name, list(error.options))}", setting=group, value=name
        )
    if isinstance(error, OverrideParseException):
        form = "is not of the form KEY=VALUE, such as trainer.max_epochs=5"
        return ConfigError(f"{error.override} {form} ({_first_lines(error)})", value=error.override)
    if isinstance(cause, OmegaConfBaseException) and isinstance(cause.parent_node, DictConfig):
        return _explain_unknown_key(str(cause.full_key), str(cause.key), cause.parent_node)
    full_key = getattr(error, "full_key", None) or getattr(cause, "full_key", None)
    return ConfigError(_first_lines(error), setting=None if full_key is None else str(full_key))


def _explain_unknown_key(full_key: str, key: str, parent: DictConfig) -> ConfigError:
    elsewhere = [path for path in _paths(parent._get_root()) if path.rpartition(".")[2] == key][:MAX_ELSEWHERE]
    hint = (
        f"Did you mean {' or '.join(elsewhere)}?"
        if elsewhere
        else f"{near_names(key, [str(name) for name in parent])}."
    )
    problem = f"{full_key} is not a setting. {hint} To add it all the same: +{full_key}=VALUE"
    return ConfigError(problem, setting=full_key)


def _paths(node: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted key; interpolations are not followed."""
    for name in node:
        yield f"{prefix}{name}"
        child = node._get_node(name)
        if isinstance(child, DictConfig) and not (child._is_none() or child._is_interpolation()):
            yield from _paths(child, f"{prefix}{name}.")


def _first_lines(error: Exception) -> str:
    """The message in one line, without the link to Hydra's documentation and the list of search paths."""
    lines = []
    for line in str(error).splitlines():
        if line.startswith(("Config search path", "See https://")):
            break
        if line.strip(" ^"):
            lines.append(line.strip())
    return "; ".join(lines) or type(error).__name__
