"""The lines of a receipt become marks on its paper, from top to bottom."""

from __future__ import annotations

import math

import numpy as np

from ocr.tools.synth import shapes, vocabulary
from ocr.tools.synth.fonts import fit_text, text_width
from ocr.tools.synth.layout import Color, Layout, Units
from ocr.tools.synth.printer import MAX_RISE, MIN_SIZE, WHITE, Printer, Type, choose_ink, print_stamp
from ocr.tools.synth.receipt import Cell, Line, Style
from ocr.tools.synth.vocabulary import chance, pick

# The width of a sign in a monospaced face, in ems.
COLUMN_EM = 0.6


def row_height_em(row: Line, style: Style) -> float:
    """The height that a line takes."""
    if row.kind == "text":
        return row.scale * style.spacing * style.tall * row.stretch * (1.25 if row.inverted else 1.0)
    if row.kind == "arch":
        return row.scale * (style.spacing * style.tall + 0.9)
    return row.scale + (0.3 if row.kind == "stamp" else 0.0)


def paper_size_em(rows: list[Line], style: Style) -> tuple[float, float]:
    """Width and height of the paper, in ems."""
    height = sum(row_height_em(row, style) for row in rows)
    return style.columns * COLUMN_EM + 2 * style.margin_em, height + 2 * (style.margin_em + 0.4)


class Typesetter:
    """Sets lines on a paper of given size."""

    def __init__(self, rng: np.random.Generator, style: Style, size: tuple[int, int], em: float) -> None:
        self.rng, self.style, self.em = rng, style, em
        self.left = style.margin_em * em
        self.span = size[0] - 2 * self.left
        self.width, self.height = size
        shade = int(rng.integers(10, 75))
        ink: Color = (shade, shade, min(255, shade + int(rng.integers(0, 25))))
        strength = float(rng.uniform(0.5, 0.8) if chance(rng, 0.25) else rng.uniform(0.85, 1.0))
        self.printer = Printer(rng, Layout(*size), ink, strength)
        self.frame_top: float | None = None

    def set_rows(self, rows: list[Line], units: Units = "lines") -> Layout:
        """Place every line, then what crosses them."""
        y = (self.style.margin_em + 0.4) * self.em
        for row in rows:
            height = row_height_em(row, self.style) * self.em
            self.printer.block += 1
            self._set_row(row, y, height)
            y += height
        self._set_extras()
        return self.printer.finish(units)

    def _set_row(self, row: Line, y: float, height: float) -> None:
        match row.kind:
            case "text":
                self._set_text(row, y, height)
            case "arch":
                self._set_arch(row, y, height)
            case "stamp":
                center = self.left + float(self.rng.uniform(0.3, 0.7)) * self.span, y + height / 2
                faces = self.style.headline, self.style.bold
                print_stamp(self.printer, row.cells[0].text, faces, center, (0.4 * self.span, height))
            case "rule":
                rule = shapes.draw_rule(self.rng, max(1, round(self.span)), self.em)
                self.printer.mark(rule, self.left, y + height / 2)
            case "dashes":
                kind = Type(self.style.regular, max(MIN_SIZE, round(self.em)), thermal=self.style.thermal)
                sign = pick(self.rng, ("-", "-", "=", "_", "*", "."))
                signs = sign * int(self.span / kind.width(sign))
                self.printer.text(signs, kind, self.left, y + height * 0.8, labelled=False)
            case "frame":
                self._set_frame(y + height / 2)
            case "barcode":
                code = shapes.draw_barcode(self.rng, max(4, round(height * 0.9)), self.em)
                code = code[:, : round(self.span)]
                self.printer.mark(code, (self.width - code.shape[1]) / 2, y)
            case "matrix":
                side = max(25, round(height * 0.95))
                self.printer.mark(shapes.draw_matrix(self.rng, side), (self.width - side) / 2, y)
            case "logo":
                emblem = shapes.draw_emblem(self.rng, max(8, round(height)))
                color = None if chance(self.rng, 0.5) else choose_ink(self.printer)
                self.printer.mark(emblem, (self.width - emblem.shape[1]) / 2, y, color)

    def _set_text(self, row: Line, y: float, height: float) -> None:
        size = max(MIN_SIZE, round(self.em * row.scale))
        face = self._face(row)
        baseline = round(y + height * (0.76 if row.inverted else 0.8))
        for cell in row.cells:
            width = (cell.right - cell.left) * self.span
            text, fitted = fit_cell(cell, face, size, width * (0.96 if row.inverted else 1.0))
            kind = Type(face, fitted, tall=self.style.tall * row.stretch, thermal=self.style.thermal)
            if row.inverted:
                bar = np.full((max(1, round(height * 0.96)), round(width)), 255, dtype=np.uint8)
                self.printer.mark(bar, self.left + cell.left * self.span, y)
            color = WHITE if row.inverted else None
            x = self._slot_start(cell, kind.width(text))
            self.printer.text(text, kind, x, baseline, color=color, can_fail=not row.inverted, labelled=cell.labelled)
            if row.underlined:
                rule = np.full((max(1, round(0.07 * self.em)), round(kind.width(text))), 255, dtype=np.uint8)
                self.printer.mark(rule, x, baseline + 0.2 * size)

    def _face(self, row: Line) -> str:
        if row.headline:
            return self.style.headline
        return self.style.bold if row.bold else self.style.second if row.second else self.style.regular

    def _set_frame(self, y: float) -> None:
        """The first of two lines of this kind is the top of a frame, the second its bottom."""
        if self.frame_top is None:
            self.frame_top = y
            return
        size = round(self.span + 0.8 * self.em), max(4, round(y - self.frame_top))
        frame = shapes.draw_frame(*size, max(1, round(0.07 * self.em)), rounded=False)
        self.printer.mark(frame, self.left - 0.4 * self.em, self.frame_top)
        self.frame_top = None

    def _slot_start(self, cell: Cell, width: float) -> float:
        left, right = self.left + cell.left * self.span, self.left + cell.right * self.span
        return {"left": left, "center": (left + right - width) / 2, "right": right - width}[cell.align]

    def _set_arch(self, row: Line, y: float, height: float) -> None:
        size = max(MIN_SIZE, round(self.em * row.scale))
        cell, face = row.cells[0], self.style.headline
        fitted = fit_text(cell.text, face, size, (cell.right - cell.left) * self.span)
        kind = Type(face, size, tall=self.style.tall)
        length = kind.width(fitted)
        rise = min(MAX_RISE, 0.8 * size, 0.2 * length) * float(self.rng.uniform(0.55, 1.0))
        smile = chance(self.rng, 0.25)
        radius = length**2 / (8 * rise) * (-1 if smile else 1)
        middle = self.width / 2, y + height * 0.8 - (0 if smile else rise)
        self.printer.bent(fitted, kind, middle, radius=radius)

    def _set_extras(self) -> None:
        """What people add: a scrawl, and what some printers put along the edge."""
        em = self.em
        if chance(self.rng, 0.3):
            size = round(em * float(self.rng.uniform(4, 8))), round(em * float(self.rng.uniform(1.5, 3)))
            pen = shapes.draw_scrawl(self.rng, *size, max(1, round(em * 0.08)))
            x = float(self.rng.uniform(0, max(1, self.width - size[0])))
            y = float(self.rng.choice([0.0, self.height - size[1]]))
            self.printer.mark(pen, x, y, (30, 40, 120) if chance(self.rng, 0.5) else (40, 40, 45))
        if self.style.margin_em > 1.8 and chance(self.rng, 0.3):
            text = f"Form {vocabulary.number(self.rng, 4)} rev. {vocabulary.number(self.rng, 1)}"
            kind = Type(self.style.regular, max(MIN_SIZE, round(em * 0.8)))
            at = self.width - 0.9 * em, self.height * float(self.rng.uniform(0.35, 0.65))
            self.printer.bent(text, kind, at, angle=-math.pi / 2)


def fit_cell(cell: Cell, face: str, size: int, slot: float) -> tuple[str, int]:
    """The text and size that fit: names are cut as tills do, amounts and centred lines are set smaller first."""
    least = {"left": 1.0, "center": 0.72, "right": 0.5}[cell.align]
    shrunk = max(MIN_SIZE, math.floor(size * min(1.0, max(least, slot / max(1.0, text_width(cell.text, face, size))))))
    return fit_text(cell.text, face, shrunk, slot), shrunk
