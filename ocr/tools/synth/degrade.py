"""What the camera or scanner adds: light, tone, blur and noise. Nothing here moves a pixel."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.look import Look
from ocr.tools.synth.paper import shade_size
from ocr.tools.synth.phrases import chance
from ocr.tools.synth.scanner import coarsen, sharpen, soil, to_two_levels
from ocr.tools.synth.scene import Scene

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
