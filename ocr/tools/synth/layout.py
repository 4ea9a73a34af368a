"""Lines become marks on the paper, each line of text with the strip that its outline is traced from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth import phrases, shapes
from ocr.tools.synth.content import Cell, Line, Style
from ocr.tools.synth.fonts import Glyphs, draw_text, fit_text, text_width
from ocr.tools.synth.phrases import chance
from ocr.tools.synth.strip import Strip, ink_box, lay_down

Color = tuple[int, int, int]

# The six chords along a 14-point polygon sag by a 36th of the arc's rise; 28 pixels keep it within half a pixel.
MAX_RISE = 28.0
# Pixels; glyphs have no shape under it.
MIN_SIZE = 5
ILLEGIBLE_SHARE = 0.02
_STAMP_INKS: tuple[Color, ...] = ((170, 35, 45), (40, 60, 160), (95, 40, 130), (30, 110, 80))
_WHITE: Color = (246, 246, 244)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """Ink on the paper, from the paper's pixel (x, y) on."""

    coverage: NDArray[np.uint8]
    x: int
    y: int
    color: Color
    strength: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One line of text: its ink, its position, its transcription."""

    mark: Mark
    strip: Strip
    text: str
    illegible: bool = False


@dataclass(slots=True)
class Layout:
    """All marks in the order they are painted in; the runs are those of them that are text."""

    width: int
    height: int
    marks: list[Mark] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def row_height_em(row: Line, style: Style) -> float:
    """The height that a line takes."""
    if row.kind == "text":
        return row.scale * style.spacing * style.tall * (1.25 if row.inverted else 1.0)
    if row.kind == "arch":
        return row.scale * (style.spacing * style.tall + 0.9)
    return row.scale + (0.3 if row.kind == "stamp" else 0.0)


def paper_size_em(rows: list[Line], style: Style) -> tuple[float, float]:
    """Width and height of the paper, in ems."""
    height = sum(row_height_em(row, style) for row in rows)
    return style.columns * 0.6 + 2 * style.margin_em, height + 2 * (style.margin_em + 0.4)


class Typesetter:
    """Sets lines on a paper of given size, from top to bottom."""

    def __init__(self, rng: np.random.Generator, style: Style, size: tuple[int, int], em: float) -> None:
        self.rng, self.style, self.em = rng, style, em
        self.layout = Layout(*size)
        self.left = style.margin_em * em
        self.span = size[0] - 2 * self.left
        shade = int(rng.integers(10, 75))
        self.ink: Color = (shade, shade, min(255, shade + int(rng.integers(0, 25))))
        self.strength = float(rng.uniform(0.5, 0.8) if chance(rng, 0.25) else rng.uniform(0.85, 1.0))

    def set_rows(self, rows: list[Line]) -> Layout:
        """Place every line, then what crosses them."""
        y = (self.style.margin_em + 0.4) * self.em
        for row in rows:
            height = row_height_em(row, self.style) * self.em
            self._set_row(row, y, height)
            y += height
        self._set_extras()
        return self.layout

    def _set_row(self, row: Line, y: float, height: float) -> None:
        match row.kind:
            case "text":
                self._set_text(row, y, height)
            case "arch":
                self._set_arch(row, y, height)
            case "stamp":
                self._set_stamp(row.cells[0].text, y, height)
            case "rule":
                rule = shapes.draw_rule(self.rng, max(1, round(self.span)), self.em)
                self._mark(rule, self.left, y + height / 2)
            case "barcode":
                code = shapes.draw_barcode(self.rng, max(4, round(height * 0.9)), self.em)
                code = code[:, : round(self.span)]
                self._mark(code, (self.layout.width - code.shape[1]) / 2, y)
            case "matrix":
                side = max(25, round(height * 0.95))
                self._mark(shapes.draw_matrix(self.rng, side), (self.layout.width - side) / 2, y)
            case "logo":
                emblem = shapes.draw_emblem(self.rng, max(8, round(height)))
                color = self.ink if chance(self.rng, 0.5) else self._stamp_ink()
                self._mark(emblem, (self.layout.width - emblem.shape[1]) / 2, y, color)

    def _set_text(self, row: Line, y: float, height: float) -> None:
        size = max(MIN_SIZE, round(self.em * row.scale))
        face = self.style.headline if row.headline else self.style.bold if row.bold else self.style.regular
        baseline = round(y + height * (0.76 if row.inverted else 0.8))
        color = self.ink
        if row.inverted:
            bar = np.full((max(1, round(height * 0.96)), round(self.span)), 255, dtype=np.uint8)
            self._mark(bar, self.left, y)
            color = _WHITE
        for cell in row.cells:
            slot = (cell.right - cell.left) * self.span * (0.96 if row.inverted else 1.0)
            fitted, fitted_size = fit_cell(cell, face, size, slot)
            glyphs = draw_text(fitted, face, fitted_size, tall=self.style.tall, thermal=self.style.thermal)
            x = self._slot_start(cell, text_width(fitted, face, fitted_size)) + glyphs.left
            self._run(glyphs, (x, baseline + glyphs.top), fitted, color, can_fail=not row.inverted)

    def _slot_start(self, cell: Cell, width: float) -> float:
        left, right = self.left + cell.left * self.span, self.left + cell.right * self.span
        return {"left": left, "center": (left + right - width) / 2, "right": right - width}[cell.align]

    def _set_arch(self, row: Line, y: float, height: float) -> None:
        size = max(MIN_SIZE, round(self.em * row.scale))
        cell, face = row.cells[0], self.style.headline
        fitted = fit_text(cell.text, face, size, (cell.right - cell.left) * self.span)
        glyphs = draw_text(fitted, face, size, tall=self.style.tall)
        length = glyphs.coverage.shape[1]
        rise = min(MAX_RISE, 0.8 * size, 0.2 * length) * float(self.rng.uniform(0.55, 1.0))
        smile = chance(self.rng, 0.25)
        radius = length**2 / (8 * rise) * (-1 if smile else 1)
        middle = self.layout.width / 2, y + height * 0.8 - (0 if smile else rise)
        self._bent(glyphs, fitted, middle, self.ink, radius=radius)

    def _set_stamp(self, text: str, y: float, height: float) -> None:
        color = self._stamp_ink()
        angle = math.radians(float(self.rng.uniform(-16, 16)))
        center = self.left + float(self.rng.uniform(0.3, 0.7)) * self.span, y + height / 2
        face = self.style.headline
        if chance(self.rng, 0.5):
            self._round_stamp(text, center, height, color)
            return
        size = max(8, round(min(height * 0.42, 0.4 * self.span / max(1.0, text_width(text, face, 100) / 100))))
        glyphs = draw_text(text, face, size)
        self._bent(glyphs, text, (center[0], center[1] + size * 0.36), color, angle=angle, turn_about=center)
        pad, thick = round(size * 0.4), max(1, size // 12)
        frame_size = glyphs.coverage.shape[1] + 2 * pad, round(size * 0.75) + 2 * pad
        frame = shapes.draw_frame(*frame_size, thick, rounded=False)
        pivot = (frame.shape[1] - 1) / 2, (frame.shape[0] - 1) / 2
        laid, left, top = lay_down(frame, Strip((0, 0, 1, 1), pivot=pivot, origin=center, angle=angle))
        self._mark(laid, left, top, color)

    def _round_stamp(self, text: str, center: tuple[float, float], height: float, color: Color) -> None:
        outer = height * 0.48
        ring = round(2 * outer)
        frame = shapes.draw_frame(ring, ring, max(1, ring // 40), rounded=True)
        self._mark(frame, center[0] - ring / 2, center[1] - ring / 2, color)
        radius, size = outer * 0.62, max(MIN_SIZE, round(outer * 0.3))
        widest = 2 * radius * min(1.3, math.acos(max(-1.0, 1 - MAX_RISE / radius)))
        name = fit_text(phrases.shop_name(self.rng).upper(), self.style.bold, size, widest)
        glyphs = draw_text(name, self.style.bold, size)
        self._bent(glyphs, name, (center[0], center[1] - radius), color, radius=radius)
        middle = fit_text(text, self.style.bold, size, 1.2 * radius)
        self._bent(draw_text(middle, self.style.bold, size), middle, (center[0], center[1] + size * 0.5), color)

    def _set_extras(self) -> None:
        """What people add: a scrawl, and what some printers put along the edge."""
        width, height, em = self.layout.width, self.layout.height, self.em
        if chance(self.rng, 0.3):
            size = round(em * float(self.rng.uniform(4, 8))), round(em * float(self.rng.uniform(1.5, 3)))
            pen = shapes.draw_scrawl(self.rng, *size, max(1, round(em * 0.08)))
            at = float(self.rng.uniform(0, max(1, width - size[0]))), float(self.rng.choice([0.0, height - size[1]]))
            self._mark(pen, *at, (30, 40, 120) if chance(self.rng, 0.5) else (40, 40, 45))
        if self.style.margin_em > 1.8 and chance(self.rng, 0.3):
            text = f"Form {phrases.number(self.rng, 4)} rev. {phrases.number(self.rng, 1)}"
            glyphs = draw_text(text, self.style.regular, max(MIN_SIZE, round(em * 0.8)))
            at = width - 0.9 * em, height * float(self.rng.uniform(0.35, 0.65))
            self._bent(glyphs, text, at, self.ink, angle=-math.pi / 2)

    def _stamp_ink(self) -> Color:
        return _STAMP_INKS[int(self.rng.integers(len(_STAMP_INKS)))]

    def _mark(self, coverage: NDArray[np.uint8], x: float, y: float, color: Color | None = None) -> None:
        self.layout.marks.append(Mark(coverage, round(x), round(y), color or self.ink, self.strength))

    def _run(self, glyphs: Glyphs, at: tuple[float, float], text: str, color: Color, *, can_fail: bool = True) -> None:
        box = ink_box(glyphs.coverage)
        if box is None:
            return
        strip = Strip(box, origin=(round(at[0]), round(at[1])))
        illegible = can_fail and chance(self.rng, ILLEGIBLE_SHARE)
        coverage = smear(self.rng, glyphs.coverage) if illegible else glyphs.coverage
        mark = Mark(coverage, round(at[0]), round(at[1]), color, self.strength)
        self.layout.marks.append(mark)
        self.layout.runs.append(Run(mark, strip, text, illegible))

    def _bent(
        self,
        glyphs: Glyphs,
        text: str,
        baseline_middle: tuple[float, float],
        color: Color,
        *,
        angle: float = 0.0,
        radius: float = math.inf,
        turn_about: tuple[float, float] | None = None,
    ) -> None:
        """A turned or bent line, given the middle of its baseline."""
        box = ink_box(glyphs.coverage)
        if box is None:
            return
        pivot = ((glyphs.coverage.shape[1] - 1) / 2, float(-glyphs.top))
        origin = baseline_middle
        if turn_about is not None:
            pivot = (pivot[0] + turn_about[0] - origin[0], pivot[1] + turn_about[1] - origin[1])
            origin = turn_about
        if angle == 0.0 and math.isinf(radius):
            origin = round(origin[0] - pivot[0]) + pivot[0], round(origin[1] - pivot[1]) + pivot[1]
        strip = Strip(box, pivot, origin, angle, radius)
        coverage, left, top = lay_down(glyphs.coverage, strip)
        mark = Mark(coverage, left, top, color, self.strength)
        self.layout.marks.append(mark)
        self.layout.runs.append(Run(mark, strip, text))


def fit_cell(cell: Cell, face: str, size: int, slot: float) -> tuple[str, int]:
    """The text and size that fit: names are cut as tills do, amounts and centred lines are set smaller first."""
    least = {"left": 1.0, "center": 0.72, "right": 0.5}[cell.align]
    shrunk = max(MIN_SIZE, math.floor(size * min(1.0, max(least, slot / max(1.0, text_width(cell.text, face, size))))))
    return fit_text(cell.text, face, shrunk, slot), shrunk


def smear(rng: np.random.Generator, coverage: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Illegible print: wiped along the line, or worn off."""
    height = coverage.shape[0]
    if chance(rng, 0.6):
        reach = max(3, round(height * float(rng.uniform(0.7, 1.3))))
        return np.asarray(
            cv2.blur(coverage, (2 * reach + 1, reach | 1), borderType=cv2.BORDER_CONSTANT), dtype=np.uint8
        )
    worn = cv2.resize(rng.random((3, max(2, coverage.shape[1] // 6)), dtype=np.float32), coverage.shape[::-1])
    return np.asarray(coverage * np.clip(worn - 0.45, 0, 0.5), dtype=np.uint8)
