"""sampling: what random stages do to pixels, in one pass from the kept page to where the batch wants it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.perspective import sample_perspective
from ocr.geometry.kernels.resample import sample_normalized_page, sample_page
from ocr.pipeline.placement import Matrix, Placement, Window, is_affine
from ocr.pipeline.sample import NO_IMAGE, Sample
from ocr.pipeline.stage import FixedStage, RandomStage, Stage

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.pipeline.device import Normalize

SAME_COLOURS = np.empty((0, 4), dtype=np.float32)
MAX_BYTES = 2**31
"""Places of pixels are 32-bit numbers in the kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class Sampling:
    """One pass over a page that is yet to be made: through a matrix, cut, coloured. It is made where it is written."""

    page: NDArray[np.uint8]
    """(H, W, 3), read-only."""
    window: Window
    """The part of the page that is shown; everything around it is `fill`."""
    matrix: Matrix
    """From the pixels that come out, before they are cut, to those of the window."""
    size: tuple[int, int]
    """(width, height) of what comes out."""
    corner: tuple[int, int] = (0, 0)
    """(x, y) of its first pixel, if it is cut."""
    fill: int = 0
    colours: NDArray[np.float32] = field(default_factory=lambda: SAME_COLOURS)
    """(3, 4): `colours[:, :3] @ pixel + colours[:, 3]`."""
    is_begun: bool = False
    """Whether any stage has joined."""

    @classmethod
    def of(cls, sample: Sample) -> Sampling | None:
        """A pass that copies the page; None if its pixels do not fit: floats, or fewer than its polygons live in."""
        image, (width, height) = sample.image, sample.size
        if image.dtype != np.uint8 or image.shape != (height, width, 3) or not 0 < image.nbytes < MAX_BYTES:
            return None
        page = np.ascontiguousarray(image).view()
        page.flags.writeable = False
        return cls(page, Window(0, 0, width, height), np.eye(3), (width, height))

    def placed(self, placement: Placement, fill: int) -> Sampling | None:
        """With geometry; None if pixels were changed before, because they can be sampled only once."""
        if self.is_begun:
            return None
        matrix: Matrix = np.linalg.inv(placement.from_window)  # type: ignore[assignment]
        if is_affine(placement.from_window):
            matrix[2] = 0, 0, 1  # Not up to rounding: the kernel depends on it.
        size = (placement.page.width, placement.page.height)
        return replace(self, window=placement.window, matrix=matrix, size=size, fill=fill, is_begun=True)

    def cut(self, window: Window) -> Sampling:
        """With all but a window of what comes out left away."""
        corner = (self.corner[0] + window.left, self.corner[1] + window.top)
        return replace(self, corner=corner, size=(window.width, window.height), is_begun=True)

    def coloured(self, matrix: Matrix, shift: float) -> Sampling | None:
        """With colours changed to `matrix @ pixel + shift`; None if they were changed before, and rounded."""
        if len(self.colours):
            return None
        colours = np.column_stack([matrix, [shift] * 3]).astype(np.float32)
        return replace(self, colours=colours, is_begun=True)

    def write(self, out: NDArray[Any], normalize: Normalize | None = None) -> None:
        """Make the pass into (H, W, 3) bytes, or with `normalize` into (3, H, W) floats."""
        if not is_affine(self.matrix):
            self._seen_at_an_angle().write(out, normalize)
            return
        what = (self.page, _plain(self.window), self.matrix[:2], self.corner, self.fill, self.colours)
        if normalize is None:
            sample_page(*what, out)
        else:
            sample_normalized_page(*what, *normalize.offset_and_factor, out)

    def _seen_at_an_angle(self) -> Sampling:
        """What is left to do once a projective matrix was applied: colours and normalisation."""
        width, height = self.size
        page = np.empty((height, width, 3), dtype=np.uint8)
        sample_perspective(self.page, _plain(self.window), self.matrix, self.corner, self.fill, page)
        page.flags.writeable = False
        return replace(self, page=page, window=Window(0, 0, width, height), matrix=np.eye(3), corner=(0, 0))

    def unpack(self) -> NDArray[np.uint8]:
        """The pixels, (H, W, 3): the pass is made now."""
        out = np.empty((self.size[1], self.size[0], 3), dtype=np.uint8)
        self.write(out)
        return out


def _plain(window: Window) -> tuple[int, int, int, int]:
    """As the kernels are compiled for."""
    return int(window.left), int(window.top), int(window.right), int(window.bottom)


class SamplingStage(RandomStage):
    """A random stage that can be part of one pass over the pixels, together with its neighbours."""

    __slots__ = ()

    @abstractmethod
    def join(self, sampling: Sampling, parameters: Any) -> Sampling | None:
        """The pass with this stage behind it; None if the stage needs the pixels that the pass makes."""

    @abstractmethod
    def change(self, image_hwc: NDArray[Any], parameters: Any) -> NDArray[Any]:
        """The pixels changed as drawn; only called if `Sampling` cannot do it, because they are floats."""

    def follow(self, sample: Sample, parameters: Any) -> Sample:
        """The sample changed as drawn; its pixels do not count."""
        return sample

    def apply(self, sample: Sample, parameters: Any) -> Sample:
        joined = _join(self, sample, parameters)
        image = self.change(sample.image, parameters) if joined is None else joined.unpack()
        return replace(self.follow(sample, parameters), image=image)


def run_in_one_pass(stages: Sequence[Stage], sample: Sample, rng: np.random.Generator) -> Sample:
    """Like `run`, bit for bit, but the last pass over the pixels is left to whoever knows where they go.

    The sample that comes out has its pixels, or a `sampling` that makes them.
    """
    for stage in stages:
        if isinstance(stage, FixedStage):
            sample = stage(sample.unpacked())
            continue
        parameters = stage.draw(rng, sample.view)
        if parameters is not None:
            sample = _apply(stage, sample, parameters)
    return sample


def _apply(stage: RandomStage, sample: Sample, parameters: Any) -> Sample:
    joined = _join(stage, sample, parameters)
    if joined is None:
        sample = sample.unpacked()
        joined = _join(stage, sample, parameters)
    if joined is None:
        return stage.apply(sample, parameters)
    assert isinstance(stage, SamplingStage)
    return without_pixels(stage.follow(sample, parameters), joined.size, joined)


def _join(stage: RandomStage, sample: Sample, parameters: Any) -> Sampling | None:
    if not isinstance(stage, SamplingStage):
        return None
    sampling = sample.sampling or Sampling.of(sample)
    return None if sampling is None else stage.join(sampling, parameters)


def without_pixels(sample: Sample, size: tuple[int, int], sampling: Sampling | None = None) -> Sample:
    """A page of this (width, height) whose pixels are made by a pass, or elsewhere."""
    return replace(sample, image=NO_IMAGE, dense=None, sampling=sampling, reduced_from=size)
