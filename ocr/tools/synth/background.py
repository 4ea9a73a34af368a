"""What a page shows besides print: the sheet with its tint, grain and folds, and the scanner bed or table under it."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.capture_style import Scene
from ocr.tools.synth.text_path import walk_box
from ocr.tools.synth.vocabulary import chance

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


_WOODS = ((150, 105, 65), (110, 75, 50), (185, 150, 110), (90, 70, 60))
_PLAINS = ((60, 62, 66), (120, 122, 125), (35, 34, 36), (160, 40, 42), (50, 80, 110), (190, 185, 175), (85, 105, 80))


def make_desk(rng: np.random.Generator, scene: Scene) -> NDArray[np.uint8]:
    """The page before the paper is laid on it, (H, W, 3)."""
    size = shade_size(scene.width, scene.height)
    small = _bed(rng, size) if scene.kind != "photo" else _table(rng, size)
    if scene.kind == "photo":
        _clutter(rng, small)
        small *= _paper_shadow(rng, scene, size, float(rng.uniform(2, 9)))[..., None]
    else:
        small *= _paper_shadow(rng, scene, size, 1.0)[..., None]
    enlarged = cv2.resize(
        np.clip(small, 0, 255).astype(np.uint8), (scene.width, scene.height), interpolation=cv2.INTER_LINEAR
    )
    return np.asarray(enlarged, dtype=np.uint8)


def _bed(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float32]:
    level = np.float32(rng.uniform(238, 255))
    return np.full((size[1], size[0], 3), level, dtype=np.float32)


def _table(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float32]:
    """Wood with a grain, a plain top, cloth or tiles."""
    width, height = size
    kind = int(rng.integers(4))
    palette = _WOODS if kind == 0 else _PLAINS
    color = np.array(palette[int(rng.integers(len(palette)))], dtype=np.float32) + rng.uniform(-15, 15, 3)
    tone = np.ones((height, width), dtype=np.float32)
    if kind == 0:
        for rows, depth in ((24, 0.1), (140, 0.09)):
            grain = rng.standard_normal((rows, 5), dtype=np.float32) * depth
            tone += cv2.resize(grain, size, interpolation=cv2.INTER_CUBIC)
        if chance(rng, 0.5):
            tone = np.ascontiguousarray(cv2.resize(tone.T, size))
    elif kind == 1:
        tone += rng.standard_normal((height, width), dtype=np.float32) * 0.08
    elif kind == 2:
        period = int(rng.integers(40, 120))
        tone[int(rng.integers(period)) :: period] *= 0.7
        tone[:, int(rng.integers(period)) :: period] *= 0.7
    cloud = rng.standard_normal((4, 4), dtype=np.float32) * 0.06
    tone += cv2.resize(cloud, size, interpolation=cv2.INTER_CUBIC)
    return np.asarray(tone[..., None] * color.astype(np.float32), dtype=np.float32)


def _clutter(rng: np.random.Generator, table: NDArray[np.float32]) -> None:
    """Objects on the desk: sheets, fingers, cards, cups, pens. None of them has text on it."""
    height, width = table.shape[:2]
    if chance(rng, 0.2):
        _sheet(rng, table)
    if chance(rng, 0.15):
        _fingers(rng, table)
    for _ in range(int(rng.choice([0, 0, 1, 2, 3]))):
        at = float(rng.uniform(0, width)), float(rng.uniform(0, height))
        color = [float(level) for level in rng.uniform(30, 220) + rng.uniform(-30, 30, size=3)]
        reach = float(rng.uniform(0.06, 0.3)) * max(width, height)
        if chance(rng, 0.3):
            cv2.circle(table, (round(at[0]), round(at[1])), round(reach / 2), color, -1, cv2.LINE_AA)
            cv2.circle(table, (round(at[0]), round(at[1])), round(reach / 2.6), [0.6 * level for level in color], -1)
            continue
        slim = float(rng.choice([0.06, 0.6, 0.75]))
        corners = cv2.boxPoints((at, (reach, reach * slim), float(rng.uniform(0, 180))))
        cv2.fillPoly(table, [corners.round().astype(np.int32)], color, cv2.LINE_AA)


def _sheet(rng: np.random.Generator, table: NDArray[np.float32]) -> None:
    """Another paper, blank, that ends somewhere under the one to read."""
    height, width = table.shape[:2]
    at = float(rng.uniform(0, width)), float(rng.uniform(0, height))
    reach = rng.uniform(0.5, 1.2, size=2) * max(width, height)
    corners = cv2.boxPoints((at, (float(reach[0]), float(reach[1])), float(rng.uniform(0, 180))))
    level = float(rng.uniform(170, 245))
    cv2.fillPoly(table, [corners.round().astype(np.int32)], (level, level, level * 0.97), cv2.LINE_AA)


def _fingers(rng: np.random.Generator, table: NDArray[np.float32]) -> None:
    """The hand that holds the paper, from one side."""
    height, width = table.shape[:2]
    tone = np.array([225, 175, 145]) * float(rng.uniform(0.35, 1.05))
    thick = round(float(rng.uniform(0.05, 0.09)) * max(width, height))
    side, down = float(rng.integers(2)), float(rng.uniform(0.3, 0.7))
    for number in range(int(rng.integers(1, 5))):
        y = (down + 0.11 * number) * height
        tip = abs(side - float(rng.uniform(0.06, 0.22))) * width
        start, end = (round(side * width), round(y + 0.05 * height)), (round(tip), round(y))
        cv2.line(table, start, end, [float(level) for level in tone * (1 - 0.04 * number)], thick, cv2.LINE_AA)


def _paper_shadow(rng: np.random.Generator, scene: Scene, size: tuple[int, int], reach: float) -> NDArray[np.float32]:
    """A soft dark rim next to the paper, away from the lamp."""
    border = walk_box((0.0, 0.0, scene.paper_width - 1.0, scene.paper_height - 1.0), 9)
    scale = size[0] / scene.width
    outline = scene.page_map.to_page(border) * scale + rng.uniform(-reach, reach, size=2)
    shadow = np.ones(size[::-1], dtype=np.float32)
    cv2.fillPoly(shadow, [outline.round().astype(np.int32)], 1 - float(rng.uniform(0.25, 0.6)))
    return np.asarray(cv2.GaussianBlur(shadow, (0, 0), reach * 0.7), dtype=np.float32)
