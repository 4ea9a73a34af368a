"""Fixed and random stages are different types; the cut is at the first random one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ocr.checks import SHARE, Range, check_numbers
from ocr.errors import ConfigError
from ocr.pipeline.sample import PageView, Sample
from ocr.pipeline.timing import timed

Sizes = NDArray[np.int64]
"""(N, 2): width and height of pages."""


class FixedStage(ABC):
    """Same sample in, same sample out: its output may be cached."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, sample: Sample) -> Sample: ...

    def sizes_after(self, sizes: Sizes) -> Sizes:
        """The sizes that pages will have; they decide which pages share a batch if pages keep their shape."""
        return sizes


class RandomStage(ABC):
    """Draws parameters from the generator of `(seed, epoch, index)`, then applies them: a new page every epoch.

    Both steps are public, so that the same parameters can be applied by other means, such as the operators of a GPU.

    >>> from dataclasses import replace
    >>> class Darken(RandomStage):
    ...     def draw(self, rng, page):
    ...         return rng.uniform(0.5, 1)
    ...     def apply(self, sample, parameters):
    ...         return replace(sample, image=(sample.image * parameters).astype(np.uint8))
    """

    __slots__ = ()
    moves_geometry = True
    """Whether polygons may move, so that maps drawn before no longer fit."""
    follows_matrix: ClassVar[bool] = True
    """Whether pixels move as `inverse_matrix` tells: none are pasted, and lines stay straight."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, page: PageView) -> Any:
        """Parameters for this page, of a type of the stage's own; None to leave the page as it is."""

    @abstractmethod
    def apply(self, sample: Sample, parameters: Any) -> Sample:
        """The sample changed as drawn. Nothing here is random."""

    def sizes_after(self, sizes: Sizes) -> Sizes:
        """The sizes that pages will have; a batch with a page that is larger than that is made again."""
        return sizes

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        parameters = self.draw(rng, sample.view)
        return sample if parameters is None else self.apply(sample, parameters)


class Chance(RandomStage):
    """A random stage that happens with probability `p`."""

    __slots__ = ()
    ranges: ClassVar[dict[str, Range]] = {}
    """Allowed values of the settings other than `p`."""
    ascending: ClassVar[tuple[str, ...]] = ()
    """Settings that must not decrease in this order."""
    p: float

    def __post_init__(self) -> None:
        check_numbers(self, p=SHARE, **self.ranges)
        values = [getattr(self, name) for name in self.ascending]
        if values != sorted(values):
            problem = f"{self!r}: {' <= '.join(self.ascending)} must hold"
            raise ConfigError(problem, setting=f"{type(self).__name__}.{self.ascending[0]}", value=values[0])

    def draw(self, rng: np.random.Generator, page: PageView) -> Any:
        return self.choose(rng, page) if rng.random() < self.p else None

    @abstractmethod
    def choose(self, rng: np.random.Generator, page: PageView) -> Any:
        """Parameters for this page, once the stage happens; None if there are none for it."""


Stage = FixedStage | RandomStage


def run(stages: Sequence[Stage], sample: Sample, rng: np.random.Generator) -> Sample:
    """Pass a sample through stages of both kinds."""
    for stage in stages:
        with timed(type(stage).__name__):
            sample = stage(sample) if isinstance(stage, FixedStage) else stage(sample, rng)
    return sample
