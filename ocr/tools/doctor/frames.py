"""In which frame were the polygons of an EXIF page drawn: the stored (raw) one or the upright one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.geometry.orientation import frame_by_geometry, orientation_matrix
from ocr.geometry.polygons import move_points
from ocr.pipeline.decode import DAMAGE, FRAMES
from ocr.tools.doctor.images import ImageFacts, read_upright

Outlines = Sequence[NDArray[np.float64]]

# Measured on 30 real receipts in all eight orientations, at this side: the paired t of the right frame is 5 or more
# (mirrored centred text is the hardest), the wrong one's -5 or less.
EVIDENCE_SIDE = 512
CLEAR_T = 3.0
# With fewer words a t means little; then the right frame must hold twice the edges of the other.
FEW_WORDS = 5
CLEAR_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The frame the polygons are evidently in (None if unknown), why, and the frame that training would use.

    `damaged` says that the page was decoded and that something is wrong with its bytes.
    """

    frame: str | None
    evidence: str
    used: str
    damaged: bool = False

    @property
    def best(self) -> str:
        """The evident frame, or else the one that training uses."""
        return self.frame or self.used


def check_frame_name(annotation_frame: str) -> None:
    """Refuse a frame that does not exist."""
    if annotation_frame not in FRAMES:
        raise ConfigError(
            f"annotation_frame={annotation_frame!r} is not one of {', '.join(FRAMES)}",
            setting="annotation_frame",
            value=annotation_frame,
        )


def judge_frame(
    facts: ImageFacts, outlines: Outlines, claimed_size: tuple[int, int] | None, annotation_frame: str
) -> Verdict:
    """Sizes first, then bounds, then the pixels under the polygons, which also settle a contradiction."""
    vertices = np.concatenate(outlines).astype(np.float32)
    nothing = np.zeros((0, 2), np.float32)
    by_size = frame_by_geometry(nothing, facts.orientation, facts.raw_size, claimed_size)
    by_bounds = frame_by_geometry(vertices, facts.orientation, facts.raw_size)
    trained = frame_by_geometry(vertices, facts.orientation, facts.raw_size, claimed_size) or "upright"
    used = trained if annotation_frame == "auto" else annotation_frame
    if by_size and by_bounds in (None, by_size):
        return Verdict(by_size, "the annotation's page size fits this frame", used)
    # One stray vertex is enough to mislead the bounds, so the pixels are checked too.
    by_pixels, damaged = _ask_pixels(facts, outlines)
    if by_pixels:
        return Verdict(by_pixels, "the polygons cover the text in this frame only", used, damaged)
    if by_bounds and not by_size:
        return Verdict(by_bounds, "the polygons fit into this frame only", used, damaged)
    reason = "page size and bounds contradict each other" if by_size else "both frames fit"
    return Verdict(None, reason, used, damaged)


def _ask_pixels(facts: ImageFacts, outlines: Outlines) -> tuple[str | None, bool]:
    """The frame according to the pixels, None if they do not decide, and whether the page is damaged."""
    try:
        page, complaint = read_upright(facts, EVIDENCE_SIDE)
    except DAMAGE:
        return None, True
    return frame_by_pixels(page, facts, outlines), bool(complaint)


def frame_by_pixels(page: NDArray[np.uint8], facts: ImageFacts, outlines: Outlines) -> str | None:
    """The frame in which the polygons clearly cover more edges, word by word; None without a clear winner."""
    gray = np.asarray(cv2.cvtColor(page, cv2.COLOR_RGB2GRAY), dtype=np.float32)
    edges = np.abs(cv2.Sobel(gray, cv2.CV_32F, 1, 0)) + np.abs(cv2.Sobel(gray, cv2.CV_32F, 0, 1))
    width, height = facts.size_in("upright")
    scale = np.diag([gray.shape[1] / width, gray.shape[0] / height, 1.0])
    turn = orientation_matrix(facts.orientation, *facts.raw_size)
    upright, raw = _edges_under(edges, outlines, scale), _edges_under(edges, outlines, scale @ turn)
    difference = upright - raw
    winner, low, high = ("upright", raw, upright) if difference.mean() > 0 else ("raw", upright, raw)
    if len(outlines) < FEW_WORDS:
        return winner if high.mean() >= CLEAR_RATIO * low.mean() and high.mean() > 0 else None
    spread = difference.std(ddof=1) / np.sqrt(len(outlines))
    return winner if abs(difference.mean()) > CLEAR_T * spread else None


def _edges_under(edges: NDArray[np.float32], outlines: Outlines, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean edge strength inside each polygon; 0 for one that is outside the page."""
    labels = np.zeros(edges.shape, dtype=np.int32)
    for label, outline in enumerate(outlines, start=1):
        # Vertices far outside would overflow the integers of the drawing.
        moved = move_points(outline.astype(np.float32), matrix).clip(-1e4, 1e4)
        cv2.fillPoly(labels, [np.rint(moved).astype(np.int32)], label)
    count = len(outlines) + 1
    pixels = np.bincount(labels.ravel(), minlength=count)
    sums = np.bincount(labels.ravel(), weights=edges.ravel(), minlength=count)
    return np.asarray(sums[1:] / np.maximum(pixels[1:], 1))
