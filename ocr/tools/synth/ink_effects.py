"""Ink on the sheet, and what printers and years do to it: spread and thin strokes, dots, worn ribbons, faded patches.

Worn print acts on the ink layer, the difference between the printed sheet and the blank one.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.background import shade_size
from ocr.tools.synth.capture_style import Look
from ocr.tools.synth.layout import Layout, Mark
from ocr.tools.synth.vocabulary import chance

Plane = NDArray[np.uint8]
# Under this many pixels per em the dots of a print head are smaller than a pixel.
_MIN_DOTS_EM = 14.0
# Faded print keeps this part of its ink or more: under it, most lines of a pale page would be illegible.
_MIN_INK = 0.45


def paint(rng: np.random.Generator, paper: NDArray[np.uint8], layout: Layout) -> None:
    """Put all marks on the sheet, paler if the print head or the ink ribbon is worn."""
    height, width = paper.shape[:2]
    worn = 0.45 if chance(rng, 0.3) else 0.08
    rows = 1 - _wear(rng, height, worn)
    columns = 1 - _wear(rng, width, worn * 0.8)
    for mark in layout.marks:
        blend(paper, mark, rows, columns)


def _wear(rng: np.random.Generator, length: int, depth: float) -> NDArray[np.float32]:
    knots = rng.random((1, 7), dtype=np.float32) ** 2 * depth
    return np.asarray(cv2.resize(knots, (length, 1), interpolation=cv2.INTER_LINEAR)[0], dtype=np.float32)


def blend(paper: NDArray[np.uint8], mark: Mark, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> None:
    """One mark on the paper; what is over the edge is cut off."""
    height, width = mark.coverage.shape
    top, left = max(0, mark.y), max(0, mark.x)
    bottom, right = min(paper.shape[0], mark.y + height), min(paper.shape[1], mark.x + width)
    if top >= bottom or left >= right:
        return
    ink = mark.coverage[top - mark.y : bottom - mark.y, left - mark.x : right - mark.x].astype(np.float32)
    ink *= rows[top:bottom, None] * (mark.strength / 255)
    ink *= columns[left:right]
    under = paper[top:bottom, left:right]
    for channel, level in enumerate(mark.color):
        plane = under[..., channel].astype(np.float32)
        plane += (level - plane) * ink
        under[..., channel] = plane


def press(rng: np.random.Generator, blank: Plane, printed: Plane, look: Look, em: float) -> Plane:
    """The printed sheet after the printer's defects and the fading of the print."""
    ink = spread(rng, np.asarray(cv2.subtract(blank, printed), dtype=np.uint8), em)
    if look.method == "matrix" and em >= _MIN_DOTS_EM:
        ink = dots(rng, ink, em)
    elif look.method == "thermal" and chance(rng, 0.4):
        ink = gaps(rng, ink, em)
    if chance(rng, (0.2 if look.method == "laser" else 0.6) * (0.5 if look.bilevel else 1)):
        ink = fade(rng, ink)
    if chance(rng, 0.12):
        # The reverse side shows through: mirrored, soft and faint.
        back = cv2.GaussianBlur(cv2.flip(ink, 1), (0, 0), max(0.5, 0.06 * em))
        ink = np.asarray(cv2.addWeighted(ink, 1.0, back, float(rng.uniform(0.05, 0.16)), 0), dtype=np.uint8)
    return np.asarray(cv2.subtract(blank, ink), dtype=np.uint8)


def spread(rng: np.random.Generator, ink: Plane, em: float) -> Plane:
    """Ink that runs and strokes that come out thin, by at most a twentieth of an em."""
    kind, reach = float(rng.random()), 0.05 * em
    if kind < 0.5 or reach < 0.35:
        return ink
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * max(1, math.floor(reach)) + 1,) * 2)
    moved = cv2.dilate(ink, kernel) if kind < 0.78 else cv2.erode(ink, kernel)
    # Half a pixel of spread is half of the way to a whole one; thin strokes must not vanish.
    share = min(1.0, reach) * float(rng.uniform(0.3, 1.0 if kind < 0.78 else 0.65))
    return np.asarray(cv2.addWeighted(ink, 1 - share, moved, share, 0), dtype=np.uint8)


def dots(rng: np.random.Generator, ink: Plane, em: float) -> Plane:
    """The needles of a dot matrix printer: seven to nine per height of a capital."""
    period = max(2.2, em * float(rng.uniform(0.075, 0.11)))
    height, width = ink.shape[:2]
    across = np.cos(np.arange(width, dtype=np.float32) * np.float32(2 * math.pi / period))
    down = np.cos(np.arange(height, dtype=np.float32) * np.float32(2 * math.pi / period))
    depth = float(rng.uniform(0.25, 0.6))
    keep = np.clip((1 - depth) * 255 + depth * 255 * (0.55 + 0.5 * (across[None] + down[:, None])), 0, 255)
    fat = cv2.dilate(ink, np.ones((2, 2), np.uint8)) if em > 24 else ink
    return _keep(np.asarray(fat, dtype=np.uint8), keep.astype(np.uint8))


def gaps(rng: np.random.Generator, ink: Plane, em: float) -> Plane:
    """Heating elements that stay cold leave light columns; a slipping roll leaves light rows."""
    height, width = ink.shape[:2]
    columns, rows = np.full(width, 255, dtype=np.uint8), np.full(height, 255, dtype=np.uint8)
    thick = max(1, round(0.05 * em))
    for x in rng.integers(0, width, size=int(rng.integers(0, 5))):
        columns[x : x + thick] = int(rng.integers(40, 170))
    if chance(rng, 0.5):
        period = max(3, round(em * float(rng.uniform(0.1, 0.35))))
        rows[np.arange(height) % period < max(1, period // 5)] = int(rng.integers(110, 210))
    return _keep(ink, np.minimum(columns[None], rows[:, None]))


def fade(rng: np.random.Generator, ink: Plane) -> Plane:
    """Heat, light and wear: the print grows pale along the strip, in patches, and is gone in spots."""
    height, width = ink.shape[:2]
    size = shade_size(width, height, 240)
    depth = float(rng.uniform(0.15, 1 - _MIN_INK))
    knots = (int(rng.integers(2, 7)), int(rng.integers(1, 4)))
    pale = np.clip(cv2.resize(rng.random(knots, dtype=np.float32), size, interpolation=cv2.INTER_CUBIC), 0, 1)
    keep = 1 - np.float32(depth) * pale
    if chance(rng, 0.5):
        grain = cv2.GaussianBlur(
            rng.standard_normal(size[::-1], dtype=np.float32), (0, 0), float(rng.uniform(0.8, 2.5))
        )
        spots = grain > float(rng.uniform(1.9, 2.6)) * float(grain.std())
        keep *= 1 - np.float32(rng.uniform(0.4, 0.95)) * spots.astype(np.float32)
    steps = np.clip(keep * 255, 0, 255).astype(np.uint8)
    return _keep(ink, np.asarray(cv2.resize(steps, (width, height), interpolation=cv2.INTER_LINEAR), dtype=np.uint8))


def _keep(ink: Plane, keep: Plane) -> Plane:
    return np.asarray(cv2.multiply(ink, cv2.merge([keep, keep, keep]), scale=1 / 255), dtype=np.uint8)
