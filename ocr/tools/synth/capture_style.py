"""How a page is printed and taken: the choices that its stages share, and the position of the paper on the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.geometry.polygons import move_points
from ocr.tools.synth.text_path import PageMap, Points, walk_box
from ocr.tools.synth.vocabulary import chance

PrintMethod = Literal["laser", "thermal", "matrix"]


@dataclass(frozen=True, slots=True)
class CaptureShares:
    """How the pages of a kind are taken and printed."""

    crop: float
    scan: float
    photo: float
    """How many are cropped scans, sheets on a scanner's bed, photographs; together 1."""
    methods: tuple[PrintMethod, ...]
    """To choose from; one that is named twice comes twice as often."""
    bilevel: float
    """How many of the scans are black and white."""
    handwritten: float = 0.0
    """How many have handwriting over them."""


@dataclass(frozen=True, slots=True)
class Look:
    """The choices that the stages of a page share."""

    method: PrintMethod = "laser"
    gray: bool = False
    bilevel: bool = False
    """Black and white as a fax or an old copier gives it, then stored as gray."""
    noise: float = 1.0
    """Standard deviation of the sensor's noise, in gray levels of the file."""
    handwritten: bool = False
    """Somebody wrote over the print."""


def choose_look(rng: np.random.Generator, kind: SceneKind, shares: CaptureShares) -> Look:
    """Scans are mostly gray, copies of forms and letters mostly bilevel; photographs have colour and noise."""
    method = shares.methods[int(rng.integers(len(shares.methods)))]
    handwritten = shares.handwritten > 0 and chance(rng, shares.handwritten)
    if kind == "photo":
        return Look(method, chance(rng, 0.08), noise=float(rng.uniform(1.0, 7.0)), handwritten=handwritten)
    bilevel = chance(rng, shares.bilevel)
    gray, noise = bilevel or chance(rng, 0.72), float(rng.uniform(0.3, 3.0))
    return Look(method, gray, bilevel, noise, handwritten)


SceneKind = Literal["crop", "scan", "photo"]

# Pixels, for a wave as long as the paper is wide: a 14-point polygon follows the longest line within half a pixel.
_MAX_AMPLITUDE = 5.5
# Under this many pixels an em at 640 the text would be smaller than on real receipts (5 % of theirs is under 5.7 high).
_MIN_EM_AT_640 = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The page's size, the paper's size in the same pixels, and the map between the two."""

    kind: SceneKind
    width: int
    height: int
    paper_width: int
    paper_height: int
    em: float
    page_map: PageMap


@dataclass(frozen=True, slots=True)
class _Pose:
    """The position of the paper before the camera, as shares of its width."""

    angle: float = 0.0
    perspective: float = 0.0
    amplitude: float = 0.0
    wavelength: float = 2.0
    phase: float = 0.0


def compose_scene(
    rng: np.random.Generator,
    paper_em: tuple[float, float],
    megapixels: tuple[float, float],
    shares: CaptureShares,
) -> Scene:
    """Choose the kind of page, lay the paper on it as large as it fits, and fix the pixels of an em from that."""
    kind: SceneKind = ("crop", "scan", "photo")[int(rng.choice(3, p=[shares.crop, shares.scan, shares.photo]))]
    pose = _choose_pose(rng, kind)
    aspect = paper_em[1] / paper_em[0]
    quad = _quad(rng, pose, aspect)
    # The wave moves the paper's border too, so the extent is taken from many points and not from the four corners.
    extent = _waved(walk_box((0, 0, 1, aspect), 33), pose)
    corners = np.array([[0, 0], [1, 0], [1, aspect], [0, aspect]], dtype=np.float32)
    spread = move_points(extent.astype(np.float32), _perspective(corners, quad))
    low, high = spread.min(axis=0), spread.max(axis=0)
    width, height = _page_size(rng, kind, float((high - low)[1] / (high - low)[0]), megapixels)
    fill = {"crop": 1.0, "scan": float(rng.uniform(0.6, 0.97)), "photo": float(rng.uniform(0.84, 0.985))}[kind]
    fit = float(min(np.array([width, height]) / (high - low)))
    wanted = _MIN_EM_AT_640 * max(width, height) / 640 * paper_em[0] / fit
    scale = fit * min(1.0, max(fill, wanted))
    free = np.array([width, height]) - (high - low) * scale
    place = free * (rng.uniform(0.15, 0.85, size=2) if kind != "crop" else 0.5) - low * scale
    return _scene(kind, (width, height), paper_em, scale, quad * scale + place - 0.5, pose)


def _scene(
    kind: SceneKind,
    size: tuple[int, int],
    paper_em: tuple[float, float],
    scale: float,
    quad: NDArray[np.float64],
    pose: _Pose,
) -> Scene:
    em = scale / paper_em[0]
    paper_width, paper_height = max(16, round(scale)), max(16, round(paper_em[1] * em))
    if kind == "crop" and pose == _Pose():
        # Nothing moves: the sheet is the page, to the last pixel.
        return Scene(kind, *size, *size, em, PageMap(np.eye(3)))
    right, bottom = paper_width - 0.5, paper_height - 0.5
    corners = np.array([[-0.5, -0.5], [right, -0.5], [right, bottom], [-0.5, bottom]], dtype=np.float32)
    matrix = _perspective(corners, quad.astype(np.float32))
    wave = min(pose.amplitude * scale, _MAX_AMPLITUDE * pose.wavelength**2)
    page_map = PageMap(matrix, wave, pose.wavelength * scale, pose.phase)
    return Scene(kind, *size, paper_width, paper_height, em, page_map)


def _perspective(corners: NDArray[np.float32], quad: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(cv2.getPerspectiveTransform(corners, quad), dtype=np.float64)


def _choose_pose(rng: np.random.Generator, kind: SceneKind) -> _Pose:
    wave = 0.0
    if kind == "photo":
        angle = float(rng.normal(0, 5.0) if chance(rng, 0.8) else rng.uniform(-28, 28))
        wave = float(rng.uniform(0.01, 0.05)) if chance(rng, 0.35) else 0.0
        perspective = float(rng.uniform(0.0, 0.09))
    elif kind == "scan":
        angle, perspective = float(rng.uniform(-3.5, 3.5)), 0.0
    elif chance(rng, 0.45):
        return _Pose()
    else:
        angle, perspective = float(rng.uniform(-1.5, 1.5)), float(rng.uniform(0, 0.01))
    return _Pose(
        math.radians(angle), perspective, wave, float(rng.uniform(1.3, 3.0)), float(rng.uniform(0, 2 * math.pi))
    )


def _quad(rng: np.random.Generator, pose: _Pose, aspect: float) -> NDArray[np.float32]:
    """The corners of a paper of width 1 as the camera sees them."""
    corners = np.array([[0, 0], [1, 0], [1, aspect], [0, aspect]])
    corners = corners + rng.uniform(-1, 1, size=(4, 2)) * pose.perspective * (1, min(aspect, 1.5))
    cos, sin = math.cos(pose.angle), math.sin(pose.angle)
    return np.asarray(corners @ np.array([[cos, sin], [-sin, cos]]), dtype=np.float32)


def _waved(points: Points, pose: _Pose) -> Points:
    return points + np.stack(
        [
            np.zeros(len(points)),
            pose.amplitude * np.sin(2 * math.pi * points[:, 0] / pose.wavelength + pose.phase),
        ],
        axis=1,
    )


def _page_size(
    rng: np.random.Generator, kind: SceneKind, paper_aspect: float, megapixels: tuple[float, float]
) -> tuple[int, int]:
    """Width and height: log-uniform in pixels, shaped by the camera, the scanner's bed or the paper itself."""
    low, high = megapixels
    pixels = 1e6 * math.exp(float(rng.uniform(math.log(low), math.log(high))))
    shape = float(rng.random())
    aspect = paper_aspect
    if kind == "scan":
        aspect = math.sqrt(2)
    elif kind == "photo" and shape < 0.65:
        aspect = (4 / 3, 3 / 2, 16 / 9)[int(rng.integers(3))]
        aspect = 1 / aspect if paper_aspect < 1 else aspect
    # Rounding down keeps the page within the upper limit; the lower one is met to within a row of pixels.
    width = max(32, math.floor(math.sqrt(pixels / aspect)))
    return width, max(32, math.floor(pixels / width))
