"""Lines of cells, before anything has a size in pixels, and the typography of a receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ocr.tools.synth import phrases
from ocr.tools.synth.fonts import FAMILIES
from ocr.tools.synth.phrases import chance, pick

Align = Literal["left", "center", "right"]
Kind = Literal["text", "gap", "rule", "dashes", "frame", "barcode", "matrix", "logo", "stamp", "arch"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its slot, in parts of the width of the print. Signs that only decorate have no label."""

    text: str
    left: float = 0.0
    right: float = 1.0
    align: Align = "left"
    labelled: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One line of print. `scale` is the size of its text, for other kinds its height, both in lines."""

    kind: Kind = "text"
    cells: tuple[Cell, ...] = ()
    scale: float = 1.0
    bold: bool = False
    inverted: bool = False
    headline: bool = False
    second: bool = False
    """Set in the other face of the receipt."""
    stretch: float = 1.0
    """Receipt printers set a line twice as high as the others."""
    underlined: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """The typography of a receipt."""

    regular: str
    bold: str
    headline: str
    second: str
    columns: int
    tall: float
    spacing: float
    thermal: bool
    margin_em: float
    right_totals: bool
    upper: bool
    currency: str


def choose_style(rng: np.random.Generator) -> Style:
    """Typefaces and measures; two in three receipts are set in a monospaced face."""
    family = "mono" if chance(rng, 0.62) else pick(rng, ("sans", "sans", "serif"))
    regular, bold = _faces(rng, family)
    headline = _faces(rng, "headline")[0] if chance(rng, 0.4) else bold
    second = _faces(rng, pick(rng, ("mono", "sans", "serif")))[int(rng.integers(2))] if chance(rng, 0.3) else regular
    mono = family == "mono"
    return Style(
        regular=regular,
        bold=bold,
        headline=headline,
        second=second,
        columns=int(rng.integers(25, 44)),
        tall=float(rng.uniform(1.05, 1.45)) if mono and chance(rng, 0.6) else 1.0,
        # Half of the real receipts leave no space between the labels of one line and the next.
        spacing=float(rng.uniform(1.07, 1.5)),
        thermal=mono and chance(rng, 0.6),
        margin_em=float(rng.uniform(0.5, 3.0)),
        right_totals=chance(rng, 0.4),
        upper=chance(rng, 0.6),
        currency=pick(rng, phrases.CURRENCIES),
    )


def _faces(rng: np.random.Generator, family: str) -> tuple[str, str]:
    return FAMILIES[family][int(rng.integers(len(FAMILIES[family])))]
