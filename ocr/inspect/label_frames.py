"""Labels of a whole page that are elsewhere: turned, mirrored, or drawn on an image of another size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ocr.evaluation.hmean import Overlaps
from ocr.geometry.orientation import orientation_matrix, upright_size
from ocr.geometry.polygons import Polygons
from ocr.inspect.page import IOU, JudgedPage, overlaps_of

MIN_LABELS = 4
"""Fewer labels match by chance, or not."""
LOST = 0.6
"""Other frames are tried if no larger share of the labels fits; of right ones a detector that works finds more."""
CLEAR_GAIN = 0.3
"""By how much the share must be larger in another frame."""
FITS_NOWHERE = 0.1
ROUNDS = 4
"""Of fitting a scale: each brings more labels within reach of their boxes."""
TURNS = {
    2: "mirrored", 3: "turned by 180 degrees", 4: "upside down", 5: "transposed", 6: "turned by 90 degrees clockwise",
    7: "transversed", 8: "turned by 90 degrees counterclockwise",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Where the labels of a page fit."""

    score: float
    detail: str
    matrix: NDArray[np.float64] | None
    """From the labels to where they fit; None if they fit nowhere."""


def find_frame(page: JudgedPage) -> Frame | None:
    """The frame that most labels fit in, if it is not their own; None if nothing is wrong, or nothing is known."""
    labels = page.given.truth
    counted = labels.select(~labels.ignore)
    if len(counted) < MIN_LABELS or len(page.found) < MIN_LABELS:
        return None
    own = _share(page, counted)
    if own > LOST:
        return None
    share, detail, matrix = max(
        ((_share(page, counted.moved(matrix)), detail, matrix) for detail, matrix in _frames(page, counted)),
        key=lambda frame: frame[0],
    )
    if share >= own + CLEAR_GAIN:
        return Frame(0.5 + share / 2, f"{share:.0%} of the labels fit {detail}, {own:.0%} as they are", matrix)
    if own <= FITS_NOWHERE:
        return Frame(0.5 - own, f"{own:.0%} of the labels fit what the detector finds, and no frame is better", None)
    return None


def _frames(page: JudgedPage, labels: Polygons) -> Iterator[tuple[str, NDArray[np.float64]]]:
    width, height = page.given.size
    for orientation, detail in TURNS.items():
        yield detail, orientation_matrix(orientation, *upright_size(orientation, width, height))
    for start in _scales(page.found.polygons.bounds, labels.bounds):
        matrix = _fit_scale(page, labels, start)
        yield f"scaled by {matrix[0, 0]:.3f} x {matrix[1, 1]:.3f}", matrix


def _scales(boxes: NDArray[np.float32], labels: NDArray[np.float32]) -> Iterator[NDArray[np.float64]]:
    """Scales to begin with: from where text ends on the right and at the bottom, and from where its middle is."""
    for share in (0.5, 0.9, 1.0):
        ends = np.quantile(boxes[:, 2:], share, axis=0), np.quantile(labels[:, 2:], share, axis=0)
        yield np.asarray(ends[0] / np.maximum(ends[1], 1.0), dtype=np.float64)


def _fit_scale(page: JudgedPage, labels: Polygons, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Improve a scale by the boxes that it brings labels onto."""
    boxes, bounds = page.found.polygons.bounds.astype(np.float64), labels.bounds.astype(np.float64)
    for _ in range(ROUNDS):
        pairs = _overlaps(page, labels.moved(np.diag([*scale, 1.0])))
        close = pairs.iou > 0.1
        if not close.any():
            break
        theirs, ours = boxes[pairs.det[close]].reshape(-1, 2, 2), bounds[pairs.gt[close]].reshape(-1, 2, 2)
        scale = (theirs * ours).sum(axis=(0, 1)) / np.maximum((ours**2).sum(axis=(0, 1)), 1e-6)
    return np.diag([*scale, 1.0])


def _share(page: JudgedPage, labels: Polygons) -> float:
    return len(_overlaps(page, labels).match(IOU)) / len(labels)


def _overlaps(page: JudgedPage, labels: Polygons) -> Overlaps:
    return overlaps_of(page.found, labels)
