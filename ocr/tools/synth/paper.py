"""The sheet: tint, grain, folds and creases, and the ink on top."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.layout import Layout, Mark
from ocr.tools.synth.phrases import chance
from ocr.tools.synth.scene import Scene

# Shading is smooth: it is drawn with this many pixels on the longer side and enlarged.
_SHADE_SIDE = 480


def shade_size(width: int, height: int, side: int = _SHADE_SIDE) -> tuple[int, int]:
    """(width, height) of the small picture that a page's shading is drawn in."""
    scale = min(1.0, side / max(width, height))
    return max(2, round(width * scale)), max(2, round(height * scale))


def make_paper(rng: np.random.Generator, scene: Scene) -> NDArray[np.uint8]:
    """A blank sheet, (H, W, 3)."""
    size = shade_size(scene.paper_width, scene.paper_height)
    shade = np.full(size[::-1], float(rng.uniform(236, 253)), dtype=np.float32)
    crumpled = chance(rng, 0.75 if scene.kind == "photo" else 0.2)
    cloud = rng.standard_normal((9, 7), dtype=np.float32) * (3.0 if crumpled else 1.0)
    shade += cv2.resize(cloud, size, interpolation=cv2.INTER_CUBIC)
    shade += rng.standard_normal(size[::-1], dtype=np.float32) * float(rng.uniform(0.3, 1.5))
    if crumpled:
        _crease(rng, shade)
    if chance(rng, 0.3):
        _curl(rng, shade)
    gray = cv2.resize(
        np.clip(shade, 0, 255).astype(np.uint8),
        (scene.paper_width, scene.paper_height),
        interpolation=cv2.INTER_LINEAR,
    )
    tint = 1.0 - rng.uniform(0, 0.02, size=3) - np.array([0.0, 0.0, float(rng.choice([0.0, 0.02, 0.08]))])
    return np.asarray(cv2.merge([cv2.convertScaleAbs(gray, alpha=float(part)) for part in tint]), dtype=np.uint8)


def _crease(rng: np.random.Generator, shade: NDArray[np.float32]) -> None:
    """Folds straight across, and creases at any angle: light on one flank, dark on the other."""
    height, width = shade.shape
    x, y = np.arange(width, dtype=np.float32)[None], np.arange(height, dtype=np.float32)[:, None]
    folds, creases = int(rng.integers(0, 4)), int(rng.integers(0, 5))
    for index in range(folds + creases):
        turn = float(rng.normal(np.pi / 2, 0.02) if index < folds else rng.uniform(0, np.pi))
        through = float(rng.uniform(0.1, 0.9)) * width, float(rng.uniform(0.08, 0.92)) * height
        away = np.float32(np.cos(turn)) * (x - np.float32(through[0])) + np.float32(np.sin(turn)) * (
            y - np.float32(through[1])
        )
        depth, reach = np.float32(rng.uniform(4, 16)), np.float32(width * rng.uniform(0.04, 0.3))
        shade += depth * (np.clip(away, -1, 1) * np.exp(-np.abs(away) / reach))
        shade -= np.float32(rng.uniform(4, 22)) * np.exp(-np.square(away))


def _curl(rng: np.random.Generator, shade: NDArray[np.float32]) -> None:
    """A strip from a roll does not lie flat: it grows darker towards its long sides, or along its length."""
    height, width = shade.shape
    depth, power = float(rng.uniform(6, 45)), float(rng.uniform(2, 6))
    across = np.linspace(-1, 1, width, dtype=np.float32) + np.float32(rng.uniform(-0.3, 0.3))
    shade -= np.float32(depth) * np.clip(np.abs(across), 0, 1.2)[None] ** np.float32(power)
    if chance(rng, 0.5):
        along = np.linspace(0, float(rng.uniform(2, 9)), height, dtype=np.float32) + np.float32(rng.uniform(0, 6))
        shade -= np.float32(depth * 0.4) * (0.5 + 0.5 * np.sin(along))[:, None]


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
