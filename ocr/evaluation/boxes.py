"""boxes: probability maps to scored polygons on the source page, in threads next to the model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from ocr.checks import POSITIVE, SHARE, SIDE, Range
from ocr.errors import ConfigError
from ocr.geometry.kernels.boxes import polygons_from_outlines, quads_from_outlines
from ocr.geometry.kernels.outlines import binarize, blank_marks, trace_outlines
from ocr.geometry.polygons import Polygons

if TYPE_CHECKING:  # Exported models run without torch.
    import torch

    MapArray = torch.Tensor | NDArray[Any]
Size = tuple[int, int]
EXACT = "exact"
"""The `unclip_ratio` that inverts the shrinking of the targets."""


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """The boxes of one page, top to bottom, on the source page."""

    polygons: Polygons
    scores: NDArray[np.float32]
    left_out: int = 0
    """How many boxes `max_candidates` cut off, lowest scores first."""

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, slots=True)
class BoxesFromMap:
    """Outlines of a probability map, scored by the mean inside, and moved out as far as the targets shrink text.

    `unclip_ratio="exact"` inverts the shrinking by `shrink_ratio`. With a number the distance is area * unclip_ratio /
    length, and the boxes equal the published DBNet post-processing, with three exceptions: the outline of a hole
    is not a box; a bay that closes when a box is unclipped is filled, and the box kept; a corner at 348.99997 counts as
    349.

    >>> text = np.zeros((32, 64), dtype=np.float32)
    >>> text[10:16, 8:48] = 0.9
    >>> found = BoxesFromMap(use_polygon=False, unclip_ratio=1.5)(text)
    >>> found.polygons.bounds.tolist(), found.scores.round(2).tolist()
    ([[5.0, 7.0, 50.0, 18.0]], [0.8999999761581421])
    """

    thresh: float = 0.3
    box_thresh: float = 0.6
    unclip_ratio: float | str = EXACT
    use_polygon: bool = True
    min_size: float = 3
    """Smallest text in pixels of the map: a box after it is unclipped, with 2 more. With a number for `unclip_ratio`, a
    quadrilateral before, too."""
    max_candidates: int | None = None
    """Maximum boxes per page; those with the best scores stay, and `left_out` counts the others. None: no limit."""
    shrink_ratio: float = 0.4
    """That of the targets that the model has learnt."""

    def __post_init__(self) -> None:
        for name in ("thresh", "box_thresh"):
            if getattr(self, name) not in SHARE:
                self._refuse(name, f"{SHARE} (a probability)")
        if self.unclip_ratio != EXACT and self.unclip_ratio not in POSITIVE:
            self._refuse("unclip_ratio", f"{EXACT!r} or {POSITIVE} (published: 1.5)")
        if self.min_size not in Range():
            self._refuse("min_size", f"{Range()}, such as 3")
        if self.shrink_ratio not in Range(0, 1, above=True, below=True):
            self._refuse("shrink_ratio", "a number > 0 and < 1, as in the targets")
        if self.max_candidates is not None and self.max_candidates not in SIDE:
            self._refuse("max_candidates", f"{SIDE}; null means no limit")

    def _refuse(self, name: str, allowed: str) -> NoReturn:
        value = getattr(self, name)
        raise ConfigError(f"{name}={value!r} must be {allowed}", setting=f"BoxesFromMap.{name}", value=value)

    def __call__(
        self, prob_map: MapArray, inverse_matrix: NDArray[np.float64] | None = None, page_size: Size | None = None
    ) -> Detections:
        """Boxes of one (H, W) or (1, H, W) map; `inverse_matrix` leads to a page of (width, height) `page_size`."""
        prob_map_hw = host_maps(prob_map)
        prob_map_hw = prob_map_hw.reshape(prob_map_hw.shape[-2:])
        vertices, offsets, scores = self._on_map(prob_map_hw)
        polygons = Polygons(vertices, offsets, np.zeros(len(scores), dtype=np.bool_))
        if inverse_matrix is not None:
            polygons = polygons.moved(np.asarray(inverse_matrix, dtype=np.float64))
        if page_size is not None:
            np.clip(polygons.vertices, 0, np.array(page_size, dtype=np.float32), out=polygons.vertices)
            # A box in the padding is now a line along the edge of the page.
            solid = polygons.solid
            polygons, scores = polygons.select(solid), scores[solid]
        left_out = 0 if self.max_candidates is None else max(0, len(scores) - self.max_candidates)
        if left_out:
            # Stable, so that the upper one of equal scores stays.
            keep = np.ones(len(scores), dtype=np.bool_)
            keep[np.argsort(-scores, kind="stable")[self.max_candidates :]] = False
            polygons, scores = polygons.select(keep), scores[keep]
        return Detections(polygons, scores, left_out)

    def batch(
        self, prob_maps: MapArray, inverse_matrices: Sequence[NDArray[np.float64]], page_sizes: Sequence[Size]
    ) -> list[Detections]:
        """Boxes of (B, 1, H, W) or (B, H, W) maps, one page after the other."""
        return [self(*page) for page in zip(host_maps(prob_maps), inverse_matrices, page_sizes, strict=True)]

    def _on_map(
        self, prob_map_hw: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
        marks = _own_marks(*prob_map_hw.shape)
        if not binarize(prob_map_hw, float(self.thresh), marks):
            raise ValueError(
                "boxes: the probability map has NaN or infinite values, from the weights of the model or its input. "
                "Look for the first bad loss of the training, or try trainer.precision=32-true"
            )
        points, starts = trace_outlines(marks)
        unclipped = polygons_from_outlines if self.use_polygon else quads_from_outlines
        # As floats: another kernel would be compiled for integers.
        ratio = 0.0 if self.unclip_ratio == EXACT else float(self.unclip_ratio)
        limits = (float(self.box_thresh), ratio, float(self.shrink_ratio), float(self.min_size))
        return unclipped(prob_map_hw, points, starts, *limits)


class BoxPool:
    """Threads that find the boxes of one batch while the model works on the next; results keep their order.

    Most of the work does not hold the GIL. Leaving the block ends the threads. A submitted map must not change until
    its result is returned.
    """

    def __init__(self, boxes: BoxesFromMap, workers: int = 2) -> None:
        if workers < 1:
            problem = f"BoxPool(workers={workers}): workers must be an integer >= 1"
            raise ConfigError(problem, setting="BoxPool.workers", value=workers)
        self.boxes = boxes
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="boxes")
        self._pending: deque[list[Future[Detections]]] = deque()

    def submit(
        self, prob_maps: MapArray, inverse_matrices: Sequence[NDArray[np.float64]], page_sizes: Sequence[Size]
    ) -> None:
        """Start on a batch; `drain` returns its boxes."""
        pages = zip(host_maps(prob_maps), inverse_matrices, page_sizes, strict=True)
        self._pending.append([self._threads.submit(self.boxes, *page) for page in pages])

    def drain(self, keep: int = 0) -> Iterator[list[Detections]]:
        """Boxes of the batches that were submitted, oldest first, until `keep` batches are left."""
        while len(self._pending) > keep:
            yield [page.result() for page in self._pending.popleft()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()


def host_maps(prob_maps: MapArray) -> NDArray[np.float32]:
    """Maps of any float type and device as float32 in main memory; without a copy if they already are."""
    if not isinstance(prob_maps, np.ndarray):
        prob_maps = prob_maps.detach().cpu().float().numpy()
    return np.ascontiguousarray(prob_maps, dtype=np.float32)


_scratch = threading.local()


def _own_marks(height: int, width: int) -> NDArray[np.int8]:
    """Each thread keeps its own array for the binarised map: new memory costs more than the pass itself."""
    if getattr(_scratch, "size", None) != (height, width):
        _scratch.size, _scratch.marks = (height, width), blank_marks(height, width)
    marks: NDArray[np.int8] = _scratch.marks
    return marks
