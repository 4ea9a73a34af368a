"""The random stages of the suffix for pages that no scanner laid flat: photographed at an angle, or turned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ocr.checks import Range
from ocr.pipeline.placement import Matrix
from ocr.pipeline.sample import PageView
from ocr.pipeline.suffix import RandomGeometry

DISTANCE = 1.0
"""From the camera to the page, in longest sides of the page: from here a telephone's lens just sees all of it."""


@dataclass(frozen=True, slots=True)
class RandomPerspective(RandomGeometry):
    """Photograph the page at an angle of up to `degrees`, sideways as well as up or down."""

    is_affine = False
    degrees: float = 15.0
    p: float = 0.3
    # Up to here the whole page is in front of the camera.
    ranges: ClassVar = {"degrees": Range(0, 40)}

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        aside, up = np.deg2rad(rng.uniform(-self.degrees, self.degrees, 2))
        about_y = np.array([[np.cos(aside), 0, np.sin(aside)], [0, 1, 0], [-np.sin(aside), 0, np.cos(aside)]])
        about_x = np.array([[1, 0, 0], [0, np.cos(up), -np.sin(up)], [0, np.sin(up), np.cos(up)]])
        tilted = about_y @ about_x
        # The page is a plane, so its third column never counts; what is nearer to the camera is larger.
        tilted[2] /= DISTANCE * max(page.width, page.height)
        tilted[:, 2] = 0, 0, 1
        to_centre = np.array([[1, 0, (1 - page.width) / 2], [0, 1, (1 - page.height) / 2], [0, 0, 1]])
        matrix: Matrix = np.linalg.inv(to_centre) @ tilted @ to_centre
        return matrix


@dataclass(frozen=True, slots=True)
class QuarterTurn(RandomGeometry):
    """Turn the page by 90, 180 or 270 degrees, exactly; a page that is not square changes its sides."""

    p: float = 0.5

    def choose(self, rng: np.random.Generator, page: PageView) -> Matrix:
        right, bottom = page.width - 1, page.height - 1
        turns = (
            [[0, -1, bottom], [1, 0, 0], [0, 0, 1]],
            [[-1, 0, right], [0, -1, bottom], [0, 0, 1]],
            [[0, 1, 0], [-1, 0, right], [0, 0, 1]],
        )
        return np.array(turns[rng.integers(3)], dtype=np.float64)

    def size(self, matrix: Matrix, page: PageView) -> tuple[int, int]:
        return (page.height, page.width) if matrix[0, 0] == 0 else (page.width, page.height)
