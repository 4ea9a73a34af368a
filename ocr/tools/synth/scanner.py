"""What scanners, copiers and fax machines add: dark rims, bands, holes, specks, streaks, sharpening, two levels."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.phrases import chance

Pixels = NDArray[np.uint8]
# Punched and stapled paper: diameters as parts of the page's longest side.
_HOLE = (0.011, 0.02)
_STAPLE = (0.001, 0.003)


def soil(rng: np.random.Generator, page: Pixels, em: float) -> None:
    """All that is dark and no print, in place: the open lid, holes, dust, dirt on the glass."""
    if chance(rng, 0.4):
        _rims(rng, page)
    if chance(rng, 0.25):
        _corners(rng, page)
    if chance(rng, 0.25):
        _holes(rng, page)
    if chance(rng, 0.5):
        sprinkle(rng, page, em)
    if chance(rng, 0.12):
        _streaks(rng, page)


def _rims(rng: np.random.Generator, page: Pixels) -> None:
    """Bands along one or two sides, straight or slanted, where the paper ended before the glass did."""
    height, width = page.shape[:2]
    dark = int(rng.integers(0, 60))
    for side in rng.choice(4, size=int(rng.integers(1, 3)), replace=False):
        start, end = rng.uniform(0.0005, 0.011, size=2) * max(width, height)
        length = float(rng.uniform(0.2, 0.8)) if chance(rng, 0.3) else 1.0
        # Given for the left side, then turned to the one chosen.
        band = np.array([[-9, -9], [start, -9], [end, length * (height + 9)], [-9, length * (height + 9)]])
        if side in (1, 3):
            band = band[:, ::-1] * (width / height, 1.0)
        if side >= 2:
            band = np.array([width - 1, height - 1]) - band
        cv2.fillPoly(page, [band.round().astype(np.int32)], (dark, dark, dark), cv2.LINE_AA)


def _corners(rng: np.random.Generator, page: Pixels) -> None:
    """Cut or folded corners of the paper."""
    height, width = page.shape[:2]
    for corner in rng.choice(4, size=int(rng.integers(1, 3)), replace=False):
        x, y = (corner % 2) * (width - 1), (corner // 2) * (height - 1)
        reach = rng.uniform(0.01, 0.075, size=2) * width * (1 - 2 * (corner % 2), 1 - 2 * (corner // 2))
        points = np.array([[x, y], [x + reach[0], y], [x, y + reach[1]]]).round().astype(np.int32)
        dark = int(rng.integers(0, 70))
        cv2.fillPoly(page, [points], (dark, dark, dark), cv2.LINE_AA)


def _holes(rng: np.random.Generator, page: Pixels) -> None:
    """A file punch at the side, or the holes of a staple at the top."""
    height, width = page.shape[:2]
    side = max(width, height)
    dark = (int(rng.integers(0, 60)),) * 3
    if chance(rng, 0.5):
        reach = round(float(rng.uniform(*_HOLE)) * side)
        x = round(float(rng.uniform(0.02, 0.07)) * width)
        x = x if chance(rng, 0.8) else width - 1 - x
        for y in rng.uniform(0.1, 0.9, size=int(rng.integers(1, 4))):
            cv2.circle(page, (x + int(rng.integers(-3, 4)), round(float(y) * height)), reach, dark, -1, cv2.LINE_AA)
    for x, y in rng.uniform((0.02, 0.005), (0.6, 0.07), size=(int(rng.integers(0, 7)), 2)):
        reach = max(1, round(float(rng.uniform(*_STAPLE)) * side))
        at = round(x * width), round(y * height)
        cv2.ellipse(page, at, (reach, max(1, reach // 2)), float(rng.uniform(0, 180)), 0, 360, dark, -1, cv2.LINE_AA)


def sprinkle(rng: np.random.Generator, page: Pixels, em: float) -> None:
    """Dust on the glass, and pepper of a copier: few specks of any size, many of a pixel or two."""
    height, width = page.shape[:2]
    for x, y, size, level in rng.random((int(rng.integers(5, 60)), 4)):
        center, reach = (int(x * width), int(y * height)), int(em * 0.12 * size**3)
        cv2.circle(page, center, reach, (int(60 + 150 * level),) * 3, -1, cv2.LINE_AA)
    if chance(rng, 0.5):
        count = int(width * height * float(rng.uniform(1e-5, 3e-4)))
        thick = max(1, round(max(width, height) / 1600))
        x, y = rng.integers(0, width - thick, size=count), rng.integers(0, height - thick, size=count)
        level = rng.integers(0, 160, size=(count, 1)).astype(np.uint8)
        for step in range(thick * thick):
            page[y + step // thick, x + step % thick] = level


def _streaks(rng: np.random.Generator, page: Pixels) -> None:
    """Dirt under the scanning bar: lines from top to bottom."""
    height, width = page.shape[:2]
    for x in rng.integers(0, width, size=int(rng.integers(1, 4))):
        thick = max(1, round(max(width, height) / float(rng.uniform(600, 1600))))
        shift = float(rng.uniform(-60, -8) if chance(rng, 0.7) else rng.uniform(8, 40))
        column = page[:, x : x + thick]
        column[:] = np.clip(column + shift, 0, 255).astype(np.uint8)


def coarsen(page: Pixels, factor: float) -> Pixels:
    """Scanned at a lower resolution, and enlarged again."""
    height, width = page.shape[:2]
    small = cv2.resize(
        page, (max(8, round(width * factor)), max(8, round(height * factor))), interpolation=cv2.INTER_AREA
    )
    return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def sharpen(page: Pixels, amount: float, sigma: float) -> Pixels:
    """The unsharp mask of a scanner's driver, with the light halo around strokes that it leaves."""
    soft = cv2.GaussianBlur(page, (0, 0), max(0.5, sigma))
    return np.asarray(cv2.addWeighted(page, 1 + amount, soft, -amount, 0), dtype=np.uint8)


def to_two_levels(rng: np.random.Generator, page: Pixels, em: float) -> Pixels:
    """Black or white at up to twice the resolution, then stored as gray at the page's own.

    A small page keeps gray edges that way, as archives of faxes have them; noise before the cut makes edges rough.
    """
    height, width = page.shape[:2]
    gray = cv2.cvtColor(page, cv2.COLOR_RGB2GRAY)
    factor = 2 if em < 28 else 1
    large = cv2.resize(gray, (width * factor, height * factor), interpolation=cv2.INTER_CUBIC)
    grain = np.frombuffer(rng.bytes(large.size), dtype=np.uint8).reshape(large.shape)
    depth = float(rng.uniform(0.02, 0.14))
    rough = cv2.addWeighted(large, 1.0, grain, depth, -127 * depth)
    if chance(rng, 0.5):
        rough = cv2.GaussianBlur(rough, (0, 0), 0.8)
    paper = float(np.percentile(gray[::7, ::7], 75))
    solid = cv2.threshold(rough, paper * float(rng.uniform(0.35, 0.6)), 255, cv2.THRESH_BINARY)[1]
    # Against the paper around it, so that pale print survives; bars and rims are solid by the first threshold.
    block, step = 2 * round(em * factor) + 1, paper * float(rng.uniform(0.07, 0.2))
    pale = cv2.adaptiveThreshold(rough, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY, block, step)
    cut = cv2.min(solid, pale)
    if factor > 1:
        cut = cv2.resize(cut, (width, height), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.merge([cut, cut, cut]), dtype=np.uint8)
