"""Learning-rate schedules over a known number of steps."""

from __future__ import annotations

from functools import partial
from math import cos, pi

import torch

from ocr.checks import SHARE, Range, check_choice
from ocr.errors import ConfigError


def one_cycle(progress: float, warmup: float, final: float) -> float:
    """Rise linearly during the share `warmup`, then fall along half a cosine to `final`."""
    if progress < warmup:
        return max(final, progress / warmup)
    return cosine((progress - warmup) / max(1e-9, 1 - warmup), 0.0, final)


def cosine(progress: float, warmup: float, final: float) -> float:
    """Half a cosine from 1 to `final`."""
    return final + (1 - final) * (1 + cos(pi * min(1.0, progress))) / 2


def constant(progress: float, warmup: float, final: float) -> float:
    """Rise linearly during the share `warmup`, then stay at 1."""
    return min(1.0, progress / warmup) if warmup else 1.0


SCHEDULES = {"one_cycle": one_cycle, "cosine": cosine, "constant": constant}


def build_schedule(
    optimizer: torch.optim.Optimizer, name: str, steps: int, warmup: float = 0.05, final: float = 0.01
) -> torch.optim.lr_scheduler.LambdaLR:
    """A schedule with one learning-rate factor for each of `steps` steps."""
    check_choice("schedule.name", name, SCHEDULES)
    if warmup not in Range(0, 1, below=True):
        raise ConfigError(
            f"schedule.warmup={warmup!r} must be {Range(0, 1, below=True)} (a share of the steps)",
            setting="schedule.warmup",
            value=warmup,
        )
    if final not in SHARE:
        raise ConfigError(
            f"schedule.final={final!r} must be {SHARE} (a share of the peak rate)",
            setting="schedule.final",
            value=final,
        )
    factor = partial(_factor, name=name, steps=max(1, steps), warmup=warmup, final=final)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _factor(step: int, name: str, steps: int, warmup: float, final: float) -> float:
    # The middle of the step: a first step at rate 0 would have no effect.
    return SCHEDULES[name]((step + 0.5) / steps, warmup, final)
