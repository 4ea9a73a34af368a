"""The kinds of page: which content, on which paper, taken how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np

from ocr.checks import check_choice
from ocr.tools.synth.content import Line, Style, choose_style
from ocr.tools.synth.form import write_form
from ocr.tools.synth.invoice import write_invoice
from ocr.tools.synth.layout import Color, Layout
from ocr.tools.synth.letter import write_letter
from ocr.tools.synth.measure import PageMeasure
from ocr.tools.synth.phrases import chance
from ocr.tools.synth.printer import Printer
from ocr.tools.synth.receipt import write_receipt
from ocr.tools.synth.scene import Scene, SceneShares, compose_scene, height_em, misfit, paper_share
from ocr.tools.synth.scripts import in_some_script
from ocr.tools.synth.sheet import Faces, Sheet
from ocr.tools.synth.typeset import COLUMN_EM, Typesetter, paper_size_em
from ocr.tools.synth.units import UNITS, Units

PageKind = Literal["receipt", "form", "letter", "invoice"]
PAGE_KINDS: tuple[PageKind, ...] = get_args(PageKind)
MIXED = "mixed"
UnitsOfPages = Literal["words", "lines", "usual"]
USUAL = "usual"
# Receipts to choose from for a page to match; one takes 0.7 ms to write.
_MATCH_TRIES = 20
# Median height of a label, in ems of print that is not stretched: over 40 receipts at 20 pixels per em.
_LABEL_EM: dict[Units, float] = {"lines": 0.93, "words": 1.12}
# Signs per line that a receipt has room for.
_MATCHED_COLUMNS = (20, 64)
# Heights that a document has room on, in ems.
_MATCHED_LINES = (36.0, 130.0)


@dataclass(frozen=True, slots=True)
class _Document:
    """A kind of page on office paper."""

    write: Callable[[Sheet], None]
    lines: tuple[float, float]
    """The height of the paper, in ems: capitals of real forms are about a hundredth of it."""
    typed_share: float
    shares: SceneShares


_DOCUMENTS: dict[PageKind, _Document] = {
    "form": _Document(write_form, (53, 83), 0.7, SceneShares(crop=0.75, scan=0.2, photo=0.05)),
    "letter": _Document(write_letter, (50, 78), 0.3, SceneShares(crop=0.55, scan=0.25, photo=0.2)),
    "invoice": _Document(write_invoice, (52, 80), 0.15, SceneShares(crop=0.55, scan=0.25, photo=0.2)),
}


def check_kind(kind: str) -> str:
    """Kinds of page with commas between them or `mixed`, or an error that lists them."""
    for name in kind.split(","):
        check_choice("kind", name, (*PAGE_KINDS, MIXED) if name == kind else PAGE_KINDS)
    return kind


def choose_kind(rng: np.random.Generator, kind: str) -> PageKind:
    """The kind of one page; one that is named twice comes twice as often."""
    kinds = PAGE_KINDS if kind == MIXED else cast("tuple[PageKind, ...]", tuple(kind.split(",")))
    return kinds[int(rng.integers(len(kinds)))] if len(kinds) > 1 else kinds[0]


def check_units(units: str) -> UnitsOfPages:
    """The name of a unit, or an error that lists them."""
    check_choice("units", units, (*UNITS, USUAL))
    return cast("UnitsOfPages", units)


def units_of(kind: PageKind, units: UnitsOfPages) -> Units:
    """What the polygons of a page surround; usual are lines on receipts and words on office paper."""
    if units != "usual":
        return units
    return "lines" if kind == "receipt" else "words"


def set_page(
    rng: np.random.Generator,
    megapixels: tuple[float, float],
    units: Units = "lines",
    kind: PageKind = "receipt",
    like: PageMeasure | None = None,
) -> tuple[Scene, Layout]:
    """The position of everything, before a pixel of the page is drawn."""
    if kind != "receipt":
        return _set_document(rng, megapixels, units, _DOCUMENTS[kind], like)
    style, rows = _choose_receipt(rng, units, like)
    scene = compose_scene(rng, paper_size_em(rows, style), megapixels, like=like)
    typesetter = Typesetter(rng, style, (scene.paper_width, scene.paper_height), scene.em)
    return scene, typesetter.set_rows(rows, units)


def _choose_receipt(rng: np.random.Generator, units: Units, like: PageMeasure | None) -> tuple[Style, list[Line]]:
    """A receipt; with `like`, of several the one that comes nearest to its shape and to the height of its lines."""
    if like is None:
        style = choose_style(rng)
        return in_some_script(rng, style, write_receipt(rng, style))
    receipts, misfits = [], []
    for _ in range(_MATCH_TRIES):
        style = choose_style(rng)
        label_em = _LABEL_EM[units] * style.tall
        width = height_em(like, label_em) / like.aspect * paper_share(like)
        style = replace(style, columns=int(np.clip((width - 2 * style.margin_em) / COLUMN_EM, *_MATCHED_COLUMNS)))
        receipts.append(in_some_script(rng, style, write_receipt(rng, style)))
        misfits.append(misfit(paper_size_em(receipts[-1][1], style), like, label_em))
    return receipts[misfits.index(min(misfits))]


def _set_document(
    rng: np.random.Generator,
    megapixels: tuple[float, float],
    units: Units,
    document: _Document,
    like: PageMeasure | None,
) -> tuple[Scene, Layout]:
    # Letter paper and its copies, or A4.
    aspect = float(rng.uniform(1.24, 1.34)) if chance(rng, 0.7) else 2**0.5
    height = float(rng.uniform(*document.lines))
    if like is not None:
        aspect, height = like.aspect, float(np.clip(height_em(like, _LABEL_EM[units]), *_MATCHED_LINES))
    scene = compose_scene(rng, (height / aspect, height), megapixels, document.shares, like)
    shade = int(rng.integers(5, 60))
    ink: Color = (shade, shade, min(255, shade + int(rng.integers(0, 15))))
    printer = Printer(rng, Layout(scene.paper_width, scene.paper_height), ink, float(rng.uniform(0.8, 1.0)))
    faces = Faces.choose(rng, document.typed_share)
    tall = float(rng.uniform(0.88, 1.3)) if chance(rng, 0.6) else 1.0
    size = scene.paper_width / scene.em, scene.paper_height / scene.em
    document.write(Sheet(printer, scene.em, *size, faces, tall))
    return scene, printer.finish(units)
