"""Which stages of a dataset's path DALI runs, and which are left to the host."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from ocr.errors import ConfigError
from ocr.pipeline.pixels import ColourJitter, JpegNoise, RandomBlur
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.stage import Stage
from ocr.pipeline.suffix import RandomWindow, Warp

COLOURS = ColourJitter | RandomBlur | JpegNoise
"""The stages of pixels that DALI has an operator for."""


@dataclass(frozen=True)
class Plan:
    """The stages of a path: those that DALI runs, and the rest, which the host runs after it."""

    letterbox: Letterbox
    geometry: tuple[Warp | RandomWindow, ...]
    colours: tuple[COLOURS, ...]
    rest: tuple[Stage, ...]

    @property
    def keeps_shape(self) -> bool:
        """Whether pages have their own shape, and their batch pads them."""
        return self.letterbox.shape == "page"


def divide(stages: tuple[Stage, ...], random_too: bool) -> Plan:
    """Assign the letterbox to DALI and, with `random_too`, the random stages up to the first without an operator."""
    first = stages[0] if stages else None
    if not isinstance(first, Letterbox):
        raise ConfigError(
            f"use_dali=true, but the transforms begin with {first!r}, and DALI needs one size per batch. "
            "Start with a Letterbox, or set use_dali=false",
            setting="transforms",
            value=first,
        )
    if first.interpolation != "linear":
        raise ConfigError(
            f"use_dali=true, but {first!r} is not linear, and {first.interpolation} in DALI gives other pixels. "
            "Set transforms.letterbox.interpolation=linear, or use_dali=false",
            setting="transforms.letterbox.interpolation",
            value=first.interpolation,
        )
    after = stages[1:] if random_too else ()
    # One warp only: the crop of a second one would have to be cut from the pixels of the first.
    geometry: list[Warp | RandomWindow] = [s for s in after[:1] if isinstance(s, Warp) and s.is_affine]
    geometry += [stage for stage in after[len(geometry) :][:1] if isinstance(stage, RandomWindow)]
    colours = tuple(takewhile(lambda stage: isinstance(stage, COLOURS), after[len(geometry) :]))
    return Plan(first, tuple(geometry), colours, stages[1 + len(geometry) + len(colours) :])  # type: ignore[arg-type]
