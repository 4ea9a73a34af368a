"""Fixed and random stages are different types; the cut is at the first random one.

Whoever takes a page through its stages calls `stage.run(sample, rng)`, whichever kind they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ocr.checks import SHARE, Range, check_numbers
from ocr.errors import ConfigError
from ocr.pipeline.sample import PageView, Sample

Sizes = NDArray[np.int64]
"""(N, 2): width and height of pages."""


class FixedStage(ABC):
    """Same sample in, same sample out: its output can be cached."""

    __slots__ = ()
    makes_floats: bool = False
    """Whether pages are floats from here on: then they are no longer cached, which keeps bytes."""

    @abstractmethod
    def __call__(self, sample: Sample) -> Sample: ...

    def run(self, sample: Sample, rng: np.random.Generator) -> Sample:
        """The sample changed; a fixed stage draws nothing."""
        return self(sample.unpacked())

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

    def run(self, sample: Sample, rng: np.random.Generator) -> Sample:
        """The sample changed as drawn for it."""
        parameters = self.draw(rng, sample.view)
        return sample if parameters is None else self.apply(sample.unpacked(), parameters)


class Probabilistic(RandomStage):
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


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The generator of one sample in one epoch: the same in any worker, after any resume.

    >>> sample_generator(0, 1, 2).integers(100) == sample_generator(0, 1, 2).integers(100)
    np.True_
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch, index))))


def split_at_cut(stages: Sequence[Stage]) -> tuple[tuple[FixedStage, ...], tuple[Stage, ...]]:
    """Split into the longest fixed prefix that leaves pages bytes, and the rest."""
    fixed = tuple(takewhile(lambda stage: isinstance(stage, FixedStage) and not stage.makes_floats, stages))
    return fixed, tuple(stages[len(fixed) :])  # type: ignore[return-value]


def moves_polygons(stages: Sequence[Stage]) -> bool:
    """Whether polygons of the same page differ between epochs, and so do their maps."""
    return any(isinstance(stage, RandomStage) and stage.moves_geometry for stage in stages)
