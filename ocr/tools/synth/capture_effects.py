"""What scanners, copiers, fax machines and cameras add: rims, light, blur, noise. Nothing here moves a pixel."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.background import shade_size
from ocr.tools.synth.capture_style import Look, Scene
from ocr.tools.synth.vocabulary import chance

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


# Light is stored in whole steps of 1/200, so that a spot up to 27 % brighter than the page still fits a byte.
_LIGHT_UNIT = 200


def degrade(rng: np.random.Generator, page: NDArray[np.uint8], scene: Scene, look: Look) -> NDArray[np.uint8]:
    """All that happens to the page between the desk and the file."""
    if scene.kind == "photo":
        page = tone(rng, light(rng, page, 0.35))
        page = blur(rng, page, scene.em, 0.6)
    else:
        page = light(rng, page, 0.12) if chance(rng, 0.3) else page
        page = expose(rng, page)
        soil(rng, page, scene.em)
        page = blur(rng, page, scene.em, 0.3)
        page = coarsen(page, float(rng.uniform(0.45, 0.8))) if chance(rng, 0.12) and scene.em > 18 else page
    page = add_noise(rng, page, look.noise, colored=scene.kind == "photo" and chance(rng, 0.5))
    if look.bilevel:
        return to_two_levels(rng, page, scene.em)
    if chance(rng, 0.15 if scene.kind == "photo" else 0.45):
        page = sharpen(page, float(rng.uniform(0.3, 1.5)), 0.05 * scene.em)
    return to_gray(page) if look.gray else page


def to_gray(page: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Three equal channels."""
    return np.asarray(cv2.cvtColor(cv2.cvtColor(page, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), dtype=np.uint8)


def light(rng: np.random.Generator, page: NDArray[np.uint8], depth: float) -> NDArray[np.uint8]:
    """Fall-off from one side, and in half of the cases the edge of a person's shadow."""
    height, width = page.shape[:2]
    size = shade_size(width, height, 160)
    x = np.linspace(-1, 1, size[0], dtype=np.float32)[None]
    y = np.linspace(-1, 1, size[1], dtype=np.float32)[:, None]
    turn = float(rng.uniform(0, 2 * math.pi))
    slope = np.float32(math.cos(turn)) * x + np.float32(math.sin(turn)) * y
    field = 1 - np.float32(rng.uniform(0, depth)) * (0.5 + 0.5 * slope)
    if chance(rng, 0.5):
        turn = float(rng.uniform(0, 2 * math.pi))
        edge = math.cos(turn) * x + math.sin(turn) * y + np.float32(0.15) * np.sin(4 * (x - y)) - rng.uniform(-0.6, 0.6)
        soft = float(rng.uniform(3, 40))
        field = field - np.float32(rng.uniform(0.2, 1.0) * depth) / (1 + np.exp(np.clip(-soft * edge, -30, 30)))
    steps = np.clip(field * _LIGHT_UNIT, 10, 255).astype(np.uint8)
    full = cv2.resize(steps, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.multiply(page, cv2.merge([full, full, full]), scale=1 / _LIGHT_UNIT), dtype=np.uint8)


def tone(rng: np.random.Generator, page: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """White balance, exposure and contrast of a camera."""
    levels = np.arange(256, dtype=np.float32) / 255
    warmth, green = float(rng.normal(0, 0.045)), float(rng.normal(0, 0.015))
    exposure, gamma = float(rng.uniform(0.8, 1.04)), float(rng.uniform(0.85, 1.2))
    curves = [exposure * levels**gamma * (1 + shift) for shift in (warmth, green, -warmth)]
    table = (np.clip(np.stack(curves, axis=1), 0, 1) * 255).astype(np.uint8)[None]
    return np.asarray(cv2.LUT(page, table), dtype=np.uint8)


def expose(rng: np.random.Generator, page: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Levels of a scanner: most burn the paper out to white, and make the print darker than it is."""
    paper = float(np.percentile(page[::9, ::9], 75)) / 255
    white = float(rng.uniform(0.97, 1.1) if chance(rng, 0.8) else rng.uniform(0.72, 0.97))
    black, gamma = float(rng.uniform(0.0, 0.14)), float(rng.uniform(0.8, 1.9))
    levels = np.clip(np.arange(256, dtype=np.float32) / 255 / max(0.2, paper), 0, None)
    curve = white * np.clip((levels - black) / (1 - black), 0, None) ** gamma
    return np.asarray(cv2.LUT(page, (np.clip(curve, 0, 1) * 255).astype(np.uint8)), dtype=np.uint8)


def blur(rng: np.random.Generator, page: NDArray[np.uint8], em: float, share: float) -> NDArray[np.uint8]:
    """A share of the pages out of focus or shaken, in proportion to the text, which stays readable."""
    kind = float(rng.random()) / share
    if kind < 0.75:
        sigma = em * float(rng.uniform(0.02, 0.075))
        return np.asarray(cv2.GaussianBlur(page, (0, 0), sigma), dtype=np.uint8) if sigma > 0.3 else page
    if kind < 1:
        reach = round(em * float(rng.uniform(0.03, 0.1)))
        turn = float(rng.uniform(0, math.pi))
        kernel = np.zeros((2 * reach + 1, 2 * reach + 1), dtype=np.float32)
        step = round(reach * math.cos(turn)), round(reach * math.sin(turn))
        cv2.line(kernel, (reach - step[0], reach - step[1]), (reach + step[0], reach + step[1]), 1.0)
        return np.asarray(cv2.filter2D(page, -1, kernel / kernel.sum()), dtype=np.uint8)
    return page


@lru_cache(maxsize=1)
def _normal_quantiles() -> NDArray[np.float64]:
    return np.array([NormalDist().inv_cdf((step + 0.5) / 256) for step in range(256)])


def add_noise(rng: np.random.Generator, page: NDArray[np.uint8], sigma: float, *, colored: bool) -> NDArray[np.uint8]:
    """Normal noise of the sensor.

    Random bytes through a table of quantiles: 5 ms per 1.5 megapixel page; drawing floats takes 40 ms.
    """
    height, width = page.shape[:2]
    table = np.clip(128 + _normal_quantiles() * sigma, 0, 255).round().astype(np.uint8)
    shape = (height, width, 3) if colored else (height, width)
    grain = cv2.LUT(np.frombuffer(rng.bytes(math.prod(shape)), dtype=np.uint8).reshape(shape), table)
    if not colored:
        grain = cv2.merge([grain, grain, grain])
    return np.asarray(cv2.addWeighted(page, 1, grain, 1, -128), dtype=np.uint8)
