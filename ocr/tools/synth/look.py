"""How a page is printed and taken, drawn once per page: what press, pen, scanner and camera are told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ocr.tools.synth.measure import PageMeasure
from ocr.tools.synth.phrases import chance
from ocr.tools.synth.scene import SceneKind

PrintMethod = Literal["laser", "thermal", "matrix"]
# Mean difference between the strongest and the weakest channel: JPEG alone gives gray pages up to this.
_GRAY_SATURATION = 1.0
# Copies in black and white have burnt-out paper and print this much darker.
_BILEVEL_PAPER, _BILEVEL_CONTRAST = 253.5, 190.0
# More would hide the print, whatever was measured on pages with a textured background.
_MAX_NOISE = 12.0


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


def choose_look(
    rng: np.random.Generator, kind: SceneKind, document: str = "receipt", like: PageMeasure | None = None
) -> Look:
    """Scans are mostly gray, copies of forms and letters mostly bilevel; photographs have colour and noise."""
    methods: tuple[PrintMethod, ...] = ("laser", "laser", "laser", "laser", "matrix")
    if document == "receipt":
        methods = ("laser", "thermal", "thermal", "matrix")
    method = methods[int(rng.integers(len(methods)))]
    # Nobody labels what is written on a receipt; that of forms is part of their layout, with labels.
    handwritten = document == "receipt" and chance(rng, 0.35)
    if kind == "photo":
        look = Look(method, chance(rng, 0.08), noise=float(rng.uniform(1.0, 7.0)), handwritten=handwritten)
    else:
        bilevel = chance(rng, 0.22 if document == "receipt" else 0.6)
        gray, noise = bilevel or chance(rng, 0.72), float(rng.uniform(0.3, 3.0))
        look = Look(method, gray, bilevel, noise, handwritten)
    return look if like is None else _like(look, like)


def _like(look: Look, page: PageMeasure) -> Look:
    """Colour, levels and noise as measured."""
    # Scaling to the measured size averages the grain of a larger file.
    noise = page.noise * max(1.0, 1 / page.scale)
    gray = page.saturation < _GRAY_SATURATION
    bilevel = gray and page.paper >= _BILEVEL_PAPER and page.contrast >= _BILEVEL_CONTRAST
    return replace(look, gray=gray, bilevel=bilevel, noise=min(_MAX_NOISE, noise))
