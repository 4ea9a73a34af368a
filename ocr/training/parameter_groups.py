"""The optimizer's parameter groups: norms and biases do not decay, the encoder can learn more slowly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ocr.checks import POSITIVE
from ocr.errors import ConfigError

log = logging.getLogger(__name__)
ENCODER, REST, UNDECAYED = "encoder", "rest", "_undecayed"

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Up to four groups, in the same order for every setting: encoder and rest, each with and without decay."""
    groups: dict[str, list[nn.Parameter]] = {part + kind: [] for part in (ENCODER, REST) for kind in ("", UNDECAYED)}
    for name, parameter in model.named_parameters():
        part = ENCODER if name.startswith(f"{ENCODER}.") else REST
        # Scales of norms and all biases: decay would shrink what a channel outputs, not how much it overfits.
        groups[part + (UNDECAYED if parameter.ndim <= 1 else "")].append(parameter)
    return [
        {"name": name, "params": parameters} | ({"weight_decay": 0.0} if name.endswith(UNDECAYED) else {})
        for name, parameters in groups.items()
        if parameters
    ]


def build_optimizer(model: nn.Module, make: MakeOptimizer, encoder_lr_factor: float = 1.0) -> torch.optim.Optimizer:
    """The optimizer of the config with these groups; the encoder learns at `encoder_lr_factor` times the rate."""
    if encoder_lr_factor not in POSITIVE:
        raise ConfigError(
            f"optimizer.encoder_lr_factor={encoder_lr_factor!r} must be {POSITIVE}, 1 for no difference",
            setting="optimizer.encoder_lr_factor",
            value=encoder_lr_factor,
        )
    try:
        optimizer = make(parameter_groups(model))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"optimizer cannot be built ({error}). Set optimizer._target_ to one that takes parameter groups, such as "
            "torch.optim.AdamW, and its own arguments",
            setting="optimizer",
        ) from error
    for group in optimizer.param_groups:
        group["lr"] *= lr_factor(group, encoder_lr_factor)
    return optimizer


def lr_factor(group: Mapping[str, Any], encoder_lr_factor: float) -> float:
    """What the learning rate of a group is multiplied by."""
    return encoder_lr_factor if group["name"].startswith(ENCODER) else 1.0


def regroup_checkpoint(checkpoint: dict[str, Any], model: nn.Module, encoder_lr_factor: float) -> None:
    """Sort the optimizer state of a checkpoint with a single group into the groups of the model, in place."""
    states = checkpoint.get("optimizer_states") or []
    if len(states) != 1 or len(states[0]["param_groups"]) != 1:
        return
    groups, (single,) = parameter_groups(model), states[0]["param_groups"]
    position = {id(parameter): index for index, parameter in enumerate(model.parameters())}
    order = [position[id(parameter)] for group in groups for parameter in group["params"]]
    if len(single["params"]) != len(order):
        return  # Another model: loading the weights says so.
    state = {new: states[0]["state"][old] for new, old in enumerate(order) if old in states[0]["state"]}
    numbers = iter(range(len(order)))
    factors = [lr_factor(group, encoder_lr_factor) for group in groups]
    regrouped = [
        single
        | group
        | {key: single[key] * factor for key in ("lr", "initial_lr") if key in single}
        | {"params": [next(numbers) for _ in group["params"]]}
        for group, factor in zip(groups, factors, strict=True)
    ]
    checkpoint["optimizer_states"] = [{"state": state, "param_groups": regrouped}]
    for schedule in checkpoint.get("lr_schedulers", []):
        for key in ("base_lrs", "_last_lr"):
            schedule[key] = [rate * factor for rate in schedule[key] for factor in factors]
    log.warning(
        "the checkpoint has one parameter group: its state continues in %d groups, norms and biases without decay",
        len(groups),
    )
