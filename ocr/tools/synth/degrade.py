"""What the camera or scanner adds: light, tone, blur and noise. Nothing here moves a pixel."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.paper import shade_size
from ocr.tools.synth.phrases import chance
from ocr.tools.synth.scene import Scene

# Light is stored in whole steps of 1/200, so that a spot up to 27 % brighter than the page still fits a byte.
_LIGHT_UNIT = 200


def degrade(rng: np.random.Generator, page: NDArray[np.uint8], scene: Scene) -> NDArray[np.uint8]:
    """All that happens to the page between the desk and the file."""
    if scene.kind == "photo" or chance(rng, 0.3):
        page = light(rng, page, 0.35 if scene.kind == "photo" else 0.12)
    page = tone(rng, page, photo=scene.kind == "photo")
    if scene.kind != "photo" and chance(rng, 0.4):
        sprinkle(rng, page, scene.em)
    page = blur(rng, page, scene.em)
    sigma = float(rng.uniform(1.0, 7.0) if scene.kind == "photo" else rng.uniform(0.3, 3.0))
    return add_noise(rng, page, sigma, colored=scene.kind == "photo" and chance(rng, 0.5))


def light(rng: np.random.Generator, page: NDArray[np.uint8], depth: float) -> NDArray[np.uint8]:
    """Fall-off from one side, and in half of the cases the edge of somebody's shadow."""
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


def tone(rng: np.random.Generator, page: NDArray[np.uint8], *, photo: bool) -> NDArray[np.uint8]:
    """White balance, exposure and contrast; scanners burn the paper out, and some know no colour."""
    levels = np.arange(256, dtype=np.float32) / 255
    if photo:
        warmth, green = float(rng.normal(0, 0.045)), float(rng.normal(0, 0.015))
        exposure, gamma = float(rng.uniform(0.8, 1.04)), float(rng.uniform(0.85, 1.2))
        curves = [exposure * levels**gamma * (1 + shift) for shift in (warmth, green, -warmth)]
    else:
        contrast = float(rng.uniform(1.0, 1.35))
        curves = [1 - (1 - levels) * contrast + float(rng.uniform(0, 0.04))] * 3
        if chance(rng, 0.4):
            page = np.asarray(cv2.cvtColor(cv2.cvtColor(page, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), dtype=np.uint8)
    table = (np.clip(np.stack(curves, axis=1), 0, 1) * 255).astype(np.uint8)[None]
    return np.asarray(cv2.LUT(page, table), dtype=np.uint8)


def sprinkle(rng: np.random.Generator, page: NDArray[np.uint8], em: float) -> None:
    """Dust on the glass, in place."""
    height, width = page.shape[:2]
    for x, y, size, level in rng.random((int(rng.integers(5, 60)), 4)):
        center, reach = (int(x * width), int(y * height)), int(em * 0.12 * size**3)
        cv2.circle(page, center, reach, (int(60 + 150 * level),) * 3, -1, cv2.LINE_AA)


def blur(rng: np.random.Generator, page: NDArray[np.uint8], em: float) -> NDArray[np.uint8]:
    """Out of focus or shaken, in proportion to the text, which stays readable."""
    kind = float(rng.random())
    if kind < 0.45:
        sigma = em * float(rng.uniform(0.02, 0.075))
        return np.asarray(cv2.GaussianBlur(page, (0, 0), sigma), dtype=np.uint8) if sigma > 0.3 else page
    if kind < 0.6:
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
