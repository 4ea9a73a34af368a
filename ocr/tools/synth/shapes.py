"""What is printed or written on a receipt and is not text: bars, codes, emblems, frames, pen strokes."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.vocabulary import chance

Coverage = NDArray[np.uint8]


def draw_rule(rng: np.random.Generator, width: int, em: float) -> Coverage:
    """A separator: solid, double, dashed or dotted."""
    thick = max(1, round(em * float(rng.uniform(0.05, 0.12))))
    style = int(rng.integers(4))
    rule = np.full((thick, width), 255, dtype=np.uint8)
    if style == 1:
        return np.concatenate([rule, np.zeros_like(rule), np.zeros_like(rule), rule])
    if style >= 2:
        period = max(3, round(em * (0.6 if style == 2 else 0.3)))
        rule[:, np.arange(width) % period >= max(1, round(period * 0.65))] = 0
    return rule


def draw_barcode(rng: np.random.Generator, height: int, em: float) -> Coverage:
    """Bars of one to four modules."""
    module = max(1, round(em * 0.12))
    bars = rng.integers(1, 4, size=70)
    code = np.repeat(np.arange(70) % 2 == 0, bars * module)
    return np.asarray(np.broadcast_to(code * np.uint8(255), (height, len(code))), dtype=np.uint8)


def draw_matrix(rng: np.random.Generator, side: int) -> Coverage:
    """A square code with three finder patterns."""
    cells = (rng.random((25, 25)) < 0.5).astype(np.uint8)
    finder = np.ones((7, 7), dtype=np.uint8)
    finder[1:6, 1:6] = 0
    finder[2:5, 2:5] = 1
    framed = np.pad(finder, ((0, 1), (0, 1)))
    cells[:8, :8], cells[:8, -8:], cells[-8:, :8] = framed, framed[:, ::-1], framed[::-1]
    return np.asarray(cv2.resize(cells * np.uint8(255), (side, side), interpolation=cv2.INTER_NEAREST), dtype=np.uint8)


def draw_emblem(rng: np.random.Generator, side: int) -> Coverage:
    """The sign of a shop: a ring, a star of bars, stacked triangles or waves."""
    emblem = np.zeros((side, side * 2), dtype=np.uint8)
    center, reach = (side, side // 2), max(2, side // 2 - 1)
    thick = max(1, side // 9)
    match int(rng.integers(4)):
        case 0:
            cv2.circle(emblem, center, reach - thick // 2, 255, thick, cv2.LINE_AA)
            cv2.ellipse(emblem, center, (reach // 2, reach - thick), 0, 0, 360, 255, -1, cv2.LINE_AA)
        case 1:
            for turn in np.arange(0, np.pi, np.pi / int(rng.integers(3, 7))):
                step = np.array([np.cos(turn), np.sin(turn)]) * reach
                ends = [tuple(int(part) for part in center + sign * step) for sign in (-1, 1)]
                cv2.line(emblem, ends[0], ends[1], 255, thick, cv2.LINE_AA)
        case 2:
            for shift in (-reach // 2, reach // 2):
                points = np.array(
                    [[side + shift, 1], [side + shift - reach, side - 2], [side + shift + reach, side - 2]]
                )
                cv2.polylines(emblem, [points.astype(np.int32)], True, 255, thick, cv2.LINE_AA)
        case _:
            x = np.arange(2 * side)
            for level in np.linspace(0.25, 0.75, 3):
                y = side * level + 0.12 * side * np.sin(x * 6 * np.pi / (2 * side))
                cv2.polylines(emblem, [np.stack([x, y], 1).astype(np.int32)], False, 255, thick, cv2.LINE_AA)
    return emblem


def draw_frame(width: int, height: int, thick: int, *, rounded: bool) -> Coverage:
    """The border of a stamp."""
    frame = np.zeros((height, width), dtype=np.uint8)
    inset = thick // 2 + 1
    if rounded:
        middle, axes = (width // 2, height // 2), (width // 2 - inset, height // 2 - inset)
        cv2.ellipse(frame, middle, axes, 0, 0, 360, 255, thick, cv2.LINE_AA)
    else:
        cv2.rectangle(frame, (inset, inset), (width - 1 - inset, height - 1 - inset), 255, thick, cv2.LINE_AA)
    return frame


def draw_scrawl(rng: np.random.Generator, width: int, height: int, thick: int) -> Coverage:
    """A pen's quick line: a tick, or loops that run like writing."""
    scrawl = np.zeros((height, width), dtype=np.uint8)
    if chance(rng, 0.3):
        points = np.array([[0.1, 0.5], [0.35, 0.9], [0.9, 0.1]]) * (width, height)
    else:
        t = np.linspace(0, 1, 120)
        loops = 2 * np.pi * float(rng.uniform(3, 7)) * t
        x = 0.08 + 0.8 * t + 0.05 * np.sin(loops * float(rng.uniform(0.8, 1.2)))
        y = 0.5 + 0.3 * np.cos(loops) * (0.5 + 0.5 * np.sin(9 * t + float(rng.uniform(0, 6))))
        points = np.stack([x * width, y * height], axis=1)
    cv2.polylines(scrawl, [points.round().astype(np.int32)], False, 255, thick, cv2.LINE_AA)
    return scrawl
