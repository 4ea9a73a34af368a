"""The kinds of page. A kind is one entry of `KINDS`: how it is taken, and the function that lays it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from ocr.checks import check_choice
from ocr.tools.synth.capture_style import CaptureShares, Scene, compose_scene
from ocr.tools.synth.form import write_form
from ocr.tools.synth.invoice import write_invoice
from ocr.tools.synth.layout import UNITS, Color, Layout, Units
from ocr.tools.synth.letter import write_letter
from ocr.tools.synth.printer import Printer
from ocr.tools.synth.receipt import choose_style, in_some_script, write_receipt
from ocr.tools.synth.sheet import Faces, Sheet
from ocr.tools.synth.typeset import Typesetter, paper_size_em
from ocr.tools.synth.vocabulary import chance

MIXED = "mixed"
UnitsOfPages = Literal["words", "lines", "usual"]
USUAL = "usual"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of page."""

    units: Units
    """What labels of such pages usually surround."""
    shares: CaptureShares
    write: Callable[[Sheet], None] | None = None
    """Fills a sheet of office paper; None: a receipt, whose paper is as long as its lines."""
    lines: tuple[float, float] = (50, 80)
    """The height of the office paper, in ems: capitals of real forms are about a hundredth of it."""
    typed_share: float = 0.0
    """How many of the sheets are filled in with a typewriter."""


_LASER: tuple[Literal["laser", "matrix"], ...] = ("laser", "laser", "laser", "laser", "matrix")
_OFFICE = CaptureShares(crop=0.55, scan=0.25, photo=0.2, bilevel=0.6, methods=_LASER)
KINDS = {
    "receipt": Kind(
        "lines",
        # Nobody labels what is written on a receipt; what is written on a form is part of its layout, with labels.
        CaptureShares(0.5, 0.2, 0.3, bilevel=0.22, methods=("laser", "thermal", "thermal", "matrix"), handwritten=0.35),
    ),
    "form": Kind(
        "words", CaptureShares(0.75, 0.2, 0.05, bilevel=0.6, methods=_LASER), write_form, (53, 83), typed_share=0.7
    ),
    "letter": Kind("words", _OFFICE, write_letter, (50, 78), typed_share=0.3),
    "invoice": Kind("words", _OFFICE, write_invoice, (52, 80), typed_share=0.15),
}


def check_kind(kind: str) -> str:
    """Kinds of page with commas between them or `mixed`, or an error that lists them."""
    for name in kind.split(","):
        check_choice("kind", name, (*KINDS, MIXED) if name == kind else tuple(KINDS))
    return kind


def choose_kind(rng: np.random.Generator, kind: str) -> str:
    """The kind of one page; one that is named twice comes twice as often."""
    kinds = list(KINDS) if kind == MIXED else kind.split(",")
    return kinds[int(rng.integers(len(kinds)))] if len(kinds) > 1 else kinds[0]


def check_units(units: str) -> UnitsOfPages:
    """The name of a unit, or an error that lists them."""
    check_choice("units", units, (*UNITS, USUAL))
    return cast("UnitsOfPages", units)


def units_of(kind: str, units: UnitsOfPages) -> Units:
    """What the polygons of a page surround."""
    return KINDS[kind].units if units == "usual" else units


def set_page(
    rng: np.random.Generator, megapixels: tuple[float, float], units: Units = "lines", kind: str = "receipt"
) -> tuple[Scene, Layout]:
    """The position of everything, before a pixel of the page is drawn."""
    chosen = KINDS[kind]
    if chosen.write is None:
        return _set_receipt(rng, megapixels, units, chosen.shares)
    # Letter paper and its copies, or A4.
    aspect = float(rng.uniform(1.24, 1.34)) if chance(rng, 0.7) else 2**0.5
    height = float(rng.uniform(*chosen.lines))
    scene = compose_scene(rng, (height / aspect, height), megapixels, chosen.shares)
    shade = int(rng.integers(5, 60))
    ink: Color = (shade, shade, min(255, shade + int(rng.integers(0, 15))))
    printer = Printer(rng, Layout(scene.paper_width, scene.paper_height), ink, float(rng.uniform(0.8, 1.0)))
    faces = Faces.choose(rng, chosen.typed_share)
    tall = float(rng.uniform(0.88, 1.3)) if chance(rng, 0.6) else 1.0
    size = scene.paper_width / scene.em, scene.paper_height / scene.em
    chosen.write(Sheet(printer, scene.em, *size, faces, tall))
    return scene, printer.finish(units)


def _set_receipt(
    rng: np.random.Generator, megapixels: tuple[float, float], units: Units, shares: CaptureShares
) -> tuple[Scene, Layout]:
    style = choose_style(rng)
    style, rows = in_some_script(rng, style, write_receipt(rng, style))
    scene = compose_scene(rng, paper_size_em(rows, style), megapixels, shares)
    typesetter = Typesetter(rng, style, (scene.paper_width, scene.paper_height), scene.em)
    return scene, typesetter.set_rows(rows, units)
