"""Words as CLEval sees them: the frame of a box, its aspect ratio, and the centres of its characters."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.overlap import Rings

# Text of unknown length counts at most this many characters.
MAX_GUESSED_LENGTH = 10


def corner_frames(rings: Rings) -> NDArray[Any]:
    """(N, 4, 2) corners of each word: its own if it has four, else the corners of the smallest rectangle around it."""
    sizes = rings.sizes
    frames = np.empty((len(rings), 4, 2), dtype=rings.vertices.dtype)
    quads = sizes == 4
    frames[quads] = rings.vertices[np.repeat(quads, sizes)].reshape(-1, 4, 2)
    for index in np.flatnonzero(~quads).tolist():
        frames[index] = _upright_rectangle(rings.vertices[rings.starts[index] : rings.starts[index + 1]])
    return frames


def _upright_rectangle(points: NDArray[Any]) -> NDArray[np.float32]:
    """Corners of the smallest rectangle around the points; its first edge runs along level text."""
    corners = cv2.boxPoints(cv2.minAreaRect(points.astype(np.float32)))
    edges = np.roll(corners, -1, axis=0) - corners
    rectangle: NDArray[np.float32] = np.roll(corners, -int(np.argmax(edges[:, 0])), axis=0)
    return rectangle


def aspect_ratios(frames: NDArray[Any]) -> NDArray[np.float64]:
    """Mean length of top and bottom over mean length of the sides."""
    sides = (np.roll(frames, -1, axis=1) - frames).astype(np.float64)
    lengths = np.sqrt(sides[..., 0] ** 2 + sides[..., 1] ** 2)
    along, across = (lengths[:, 0] + lengths[:, 2]) / 2, (lengths[:, 1] + lengths[:, 3]) / 2
    ratios: NDArray[np.float64] = (along + 1e-5) / (across + 1e-5)
    return ratios


def guessed_lengths(ratios: NDArray[np.float64]) -> NDArray[np.int64]:
    """Characters of words whose text is unknown."""
    return np.minimum(np.rint(0.5 + np.maximum(ratios, 1 / ratios)), MAX_GUESSED_LENGTH).astype(np.int64)


def stray_lengths(ratios: NDArray[np.float64]) -> NDArray[np.int64]:
    """Characters that a detection without any text under it counts as; the published formula favours wide boxes."""
    return np.minimum(np.rint(0.5 + 1 / (1e-5 + ratios)), MAX_GUESSED_LENGTH).astype(np.int64)


def relative_heights(rings: Rings, longer_side: float) -> NDArray[np.float32]:
    """Shorter side of the rectangle around each word, cut to whole pixels, over the page's longer side."""
    heights = np.empty(len(rings), dtype=np.float32)
    for index in range(len(rings)):
        points = rings.vertices[rings.starts[index] : rings.starts[index + 1]].astype(np.float32)
        corners = np.around(cv2.boxPoints(cv2.minAreaRect(points)))
        lengths = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
        heights[index] = min(lengths[0] + lengths[2], lengths[1] + lengths[3]) / 2 / longer_side
    return heights


def character_centers(
    rings: Rings, frames: NDArray[Any], ratios: NDArray[np.float64], lengths: NDArray[np.int64], upright_ratio: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Packed centres (C, 2) of all words' characters, evenly spaced along each word, and where each word starts.

    A word narrower than `upright_ratio` times its height is read along its height, upwards as published. A word with
    four corners has its characters on its middle line, any other halfway between its borders: they follow curves.
    """
    starts = np.zeros(len(rings) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    upright = ratios < upright_ratio
    corners = np.where(upright[:, None, None], np.roll(frames, 1, axis=1), frames)
    begin, end = (corners[:, 0] + corners[:, 3]) / 2, (corners[:, 1] + corners[:, 2]) / 2
    # The input's own precision: in float32 a centre can fall on the other side of a box's border than in float64.
    step = (end - begin) / np.maximum(lengths, 1)[:, None].astype(frames.dtype)
    word = np.repeat(np.arange(len(rings)), lengths)
    place = (np.arange(starts[-1]) - starts[word]).astype(frames.dtype)
    centers = (begin + step / 2)[word] + step[word] * place[:, None]
    for index in np.flatnonzero(rings.sizes != 4).tolist():
        points = rings.vertices[rings.starts[index] : rings.starts[index + 1]]
        span = slice(starts[index], starts[index + 1])
        centers[span] = _between_borders(points, centers[span], end[index] - begin[index])
    return centers.astype(np.float64), starts


def _between_borders(points: NDArray[Any], centers: NDArray[Any], direction: NDArray[Any]) -> NDArray[Any]:
    """Move each centre across the reading direction to the middle of the polygon's widest stretch there."""
    along = direction.astype(np.float64) / max(float(np.hypot(*direction)), 1e-9)
    across = np.array([-along[1], along[0]])
    outline = np.trunc(points).astype(np.float64)
    u, v = outline @ along, outline @ across
    next_u, next_v = np.roll(u, -1), np.roll(v, -1)
    at = (centers @ along)[:, None]
    cut = (u <= at) != (next_u <= at)
    # Edges that are not cut are moved in pairs to the far end, where their stretches have no width.
    crossings = np.where(cut, v + (at - u) / np.where(next_u == u, 1, next_u - u) * (next_v - v), 1e15)
    crossings.sort(axis=1)
    low, high = crossings[:, : len(u) // 2 * 2 : 2], crossings[:, 1::2]
    widest = np.argmax(high - low, axis=1)[:, None]
    middle = np.take_along_axis(low + high, widest, axis=1) / 2
    return np.where(cut.any(axis=1)[:, None], at * along + middle * across, centers)
