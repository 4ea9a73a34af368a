"""Fixed and random stages are different types; the cut is at the first random one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ocr.checks import SHARE, Range, check_numbers
from ocr.errors import ConfigError
from ocr.pipeline.sample import Sample


class FixedStage(ABC):
    """Same sample in, same sample out: its output may be cached."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, sample: Sample) -> Sample: ...


class RandomStage(ABC):
    """Draws from the generator of `(seed, epoch, index)`: its output is new every epoch."""

    __slots__ = ()
    moves_geometry = True
    """Whether polygons may move, so that maps drawn before no longer fit."""

    @abstractmethod
    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample: ...


class Chance(RandomStage):
    """A random stage that happens with probability `p`."""

    __slots__ = ()
    ranges: ClassVar[dict[str, Range]] = {}
    """Of the parameters beside `p`."""
    ascending: ClassVar[tuple[str, ...]] = ()
    """Parameters of which none may be below the one before it."""
    p: float

    def __post_init__(self) -> None:
        check_numbers(self, p=SHARE, **self.ranges)
        values = [getattr(self, name) for name in self.ascending]
        if values != sorted(values):
            raise ConfigError(f"{self!r}: {' <= '.join(self.ascending)} must hold")


Stage = FixedStage | RandomStage


def run(stages: Sequence[Stage], sample: Sample, rng: np.random.Generator) -> Sample:
    """Pass a sample through stages of both kinds."""
    for stage in stages:
        sample = stage(sample) if isinstance(stage, FixedStage) else stage(sample, rng)
    return sample
