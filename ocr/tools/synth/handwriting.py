"""What people write on a printed page. On receipts it is not labelled: a detector must pass it by."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth import vocabulary
from ocr.tools.synth.vocabulary import chance, pick

Coverage = NDArray[np.uint8]
_PENS = ((25, 25, 30), (30, 40, 120), (25, 60, 150), (170, 30, 40), (20, 110, 70))
# Hershey's pen fonts are single strokes, so they bend and thicken like writing.
_HANDS = (cv2.FONT_HERSHEY_SCRIPT_SIMPLEX, cv2.FONT_HERSHEY_SCRIPT_COMPLEX, cv2.FONT_HERSHEY_SIMPLEX)


def write_by_hand(rng: np.random.Generator, page: NDArray[np.uint8], em: float) -> None:
    """Notes, amounts, ticks and rings, in place."""
    height, width = page.shape[:2]
    color = _PENS[int(rng.integers(len(_PENS)))]
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        stroke = _stroke(rng, em)
        room = max(1, width - stroke.shape[1]), max(1, height - stroke.shape[0])
        # Mostly in the margins at the top and at the bottom, where there is space to write.
        down = float(rng.choice([rng.beta(1, 8), rng.beta(8, 1), rng.random()]))
        _draw(
            page, stroke, round(float(rng.random()) * room[0]), round(down * room[1]), color, float(rng.uniform(0.6, 1))
        )


def _stroke(rng: np.random.Generator, em: float) -> Coverage:
    kind = float(rng.random())
    thick = max(1, round(em * float(rng.uniform(0.05, 0.13))))
    if kind < 0.55:
        return handwriting(rng, _words(rng), em * float(rng.uniform(1.1, 3.2)), thick)
    if kind < 0.75:
        return _ring(rng, em * float(rng.uniform(2.5, 7)), em * float(rng.uniform(1.5, 3)), thick)
    return _tick(rng, em * float(rng.uniform(1.2, 3)), thick)


def _words(rng: np.random.Generator) -> str:
    return pick(
        rng,
        (
            vocabulary.number(rng, int(rng.integers(2, 8))),
            f"{int(rng.integers(1, 900))}.{vocabulary.number(rng, 2)}",
            vocabulary.date(rng),
            pick(rng, vocabulary.PERSONS),
            f"{pick(rng, vocabulary.PERSONS)} {pick(rng, ('ok', 'paid', 'lunch', 'office', 'taxi'))}",
        ),
    )


def handwriting(rng: np.random.Generator, text: str, height: float, thick: int) -> Coverage:
    """Pen strokes on a slanted, uneven line."""
    face = _HANDS[int(rng.integers(len(_HANDS)))]
    scale = height / 30
    (width, tall), below = cv2.getTextSize(text, face, scale, thick)
    pad = round(height * 0.6)
    flat = np.zeros((tall + below + 2 * pad, width + 2 * pad), dtype=np.uint8)
    cv2.putText(flat, text, (pad, pad + tall), face, scale, 255, thick, cv2.LINE_AA)
    rows, columns = np.mgrid[: flat.shape[0], : flat.shape[1]].astype(np.float32)
    turn = np.float32(math.tan(rng.normal(0, 0.09)))
    slant = np.float32(rng.uniform(-0.1, 0.5))
    wave = rng.standard_normal((2, 3, max(3, len(text))), dtype=np.float32) * np.float32(0.12 * height)
    across, down = (cv2.resize(part, flat.shape[::-1], interpolation=cv2.INTER_CUBIC) for part in wave)
    x = columns + across + slant * (rows - flat.shape[0] / 2)
    y = rows + down + turn * (columns - flat.shape[1] / 2)
    return np.asarray(cv2.remap(flat, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT), dtype=np.uint8)


def draw_signature(rng: np.random.Generator, width: int, height: int, thick: int) -> Coverage:
    """One stroke of loops that grow smaller, and a flourish."""
    signature = np.zeros((max(4, height), max(8, width)), dtype=np.uint8)
    t = np.linspace(0, 1, 160)
    turns = 2 * np.pi * float(rng.uniform(4, 9)) * t
    fall = 1 - float(rng.uniform(0.3, 0.8)) * t
    x = 0.06 + 0.82 * t + 0.06 * np.sin(turns * float(rng.uniform(0.5, 1.5)) + float(rng.uniform(0, 6)))
    y = 0.55 + 0.38 * fall * np.sin(turns + float(rng.uniform(0, 6))) * np.cos(float(rng.uniform(3, 9)) * t)
    points = np.stack([x * width, y * height], axis=1)
    if chance(rng, 0.4):
        points = np.concatenate([points, np.array([[0.1, 0.9], [0.95, 0.8]]) * (width, height)])
    cv2.polylines(signature, [points.round().astype(np.int32)], False, 255, thick, cv2.LINE_AA)
    return signature


def _ring(rng: np.random.Generator, width: float, height: float, thick: int) -> Coverage:
    """A circle around a number, not quite closed."""
    turn = np.linspace(0, 2 * math.pi * float(rng.uniform(0.93, 1.15)), 60) + float(rng.uniform(0, 6))
    swell = 1 + 0.1 * np.sin(turn * 0.5 + float(rng.uniform(0, 6)))
    points = np.stack([np.cos(turn) * swell * width / 2, np.sin(turn) * swell * height / 2], axis=1)
    return _polyline(points, thick)


def _tick(rng: np.random.Generator, size: float, thick: int) -> Coverage:
    points = np.array([[0.0, 0.55], [0.3, 1.0], [1.0, 0.0]]) + rng.normal(0, 0.07, size=(3, 2))
    return _polyline(points * size, thick)


def _polyline(points: NDArray[np.float64], thick: int) -> Coverage:
    points = points - points.min(axis=0) + thick
    width, height = (math.ceil(reach) + thick + 1 for reach in points.max(axis=0))
    stroke = np.zeros((height, width), dtype=np.uint8)
    cv2.polylines(stroke, [points.round().astype(np.int32)], False, 255, thick, cv2.LINE_AA)
    return stroke


def _draw(
    page: NDArray[np.uint8], stroke: Coverage, x: int, y: int, color: tuple[int, int, int], strength: float
) -> None:
    window = page[y : y + stroke.shape[0], x : x + stroke.shape[1]]
    ink = stroke[: window.shape[0], : window.shape[1], None].astype(np.float32) * np.float32(strength / 255)
    window[:] = window + (np.array(color, dtype=np.float32) - window) * ink
