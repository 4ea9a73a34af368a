"""Puts text, shapes and rubber stamps on the paper, and remembers each word for its label."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth import shapes, vocabulary
from ocr.tools.synth.fonts import Glyphs, draw_text, face_for, fit_text, text_width
from ocr.tools.synth.layout import Color, Layout, Mark, Piece, Units, cap_height, label, split_words
from ocr.tools.synth.text_path import Strip, ink_box, lay_down
from ocr.tools.synth.vocabulary import chance

# The six chords along a 14-point polygon sag by a 36th of the arc's rise; 28 pixels keep it within half a pixel.
MAX_RISE = 28.0
# Pixels; glyphs have no shape under it.
MIN_SIZE = 5
ILLEGIBLE_SHARE = 0.02
WHITE: Color = (246, 246, 244)


@dataclass(frozen=True, slots=True)
class Type:
    """How a text is set: its face, its size in pixels, and what is done to its glyphs."""

    face: str
    size: int
    tall: float = 1.0
    thermal: bool = False
    spaced: bool = False
    """A space after every letter, three between words."""

    def for_text(self, text: str) -> Type:
        """The same, in a face that has all letters of the text."""
        face = face_for(text, self.face)
        return self if face == self.face else replace(self, face=face)

    def set_text(self, text: str) -> str:
        """The text as it is drawn."""
        return "   ".join(" ".join(word) for word in text.split()) if self.spaced else text

    def draw(self, text: str) -> Glyphs:
        """The glyphs of a text."""
        return draw_text(text, self.face, self.size, tall=self.tall, thermal=self.thermal)

    def width(self, text: str) -> float:
        """How far the pen moves, in pixels."""
        return text_width(self.set_text(text), self.face, self.size)


@dataclass(slots=True)
class Printer:
    """Prints on one paper with one ink."""

    rng: np.random.Generator
    layout: Layout
    ink: Color = (20, 20, 20)
    strength: float = 1.0
    block: int = 0
    """Text printed under different numbers never shares a line."""
    pieces: list[Piece] = field(default_factory=list)

    def finish(self, units: Units) -> Layout:
        """The layout with a label for each word or line."""
        self.layout.runs = label(self.pieces, units)
        return self.layout

    def mark(self, coverage: NDArray[np.uint8], x: float, y: float, color: Color | None = None) -> Mark:
        """Ink without a label."""
        mark = Mark(coverage, round(x), round(y), color or self.ink, self.strength)
        self.layout.marks.append(mark)
        return mark

    def is_free(self, coverage: NDArray[np.uint8], x: float, y: float) -> bool:
        """Whether nothing with a label is printed where this would be."""
        height, width = coverage.shape
        # Turned and bent text is in a frame of its own, and rare.
        strips = [piece.strip for piece in self.pieces if piece.strip == Strip(piece.strip.box)]
        boxes = np.array([strip.box for strip in strips]).reshape(-1, 4)
        hit = (boxes[:, 0] < x + width) & (boxes[:, 2] > x) & (boxes[:, 1] < y + height) & (boxes[:, 3] > y)
        return not hit.any()

    def shape(
        self,
        coverage: NDArray[np.uint8],
        x: float,
        y: float,
        text: str,
        baseline: float,
        cap: float,
        *,
        color: Color | None = None,
        illegible: bool = False,
        lead: str | None = None,
    ) -> None:
        """Drawn ink with one label: handwriting, a tick box, a signature."""
        box = ink_box(coverage)
        if box is None:
            return
        mark = self.mark(coverage, x, y, color)
        strip = Strip((box[0] + mark.x, box[1] + mark.y, box[2] + mark.x, box[3] + mark.y))
        # What is ignored lies across lines of print, and must not part their words.
        block = -len(self.pieces) - 1 if illegible else self.block
        if self._is_on_paper(strip):
            self.pieces.append(Piece(text, mark, strip, baseline, cap, block, illegible=illegible, lead=lead))

    def text(
        self,
        text: str,
        kind: Type,
        x: float,
        baseline: float,
        *,
        color: Color | None = None,
        can_fail: bool = True,
        labelled: bool = True,
    ) -> None:
        """A straight line of text, from the pen's position on."""
        drawn = kind.set_text(text)
        glyphs = kind.draw(drawn)
        left, top = round(x + glyphs.left), round(baseline + glyphs.top)
        illegible = labelled and can_fail and chance(self.rng, ILLEGIBLE_SHARE)
        coverage = smear(self.rng, glyphs.coverage) if illegible else glyphs.coverage
        mark = self.mark(coverage, left, top, color)
        if labelled:
            frame = Strip((0, 0, 0, 0))
            self._keep(drawn, glyphs, kind, mark, frame, (left, top), illegible=illegible)

    def bent(
        self,
        text: str,
        kind: Type,
        baseline_middle: tuple[float, float],
        *,
        color: Color | None = None,
        angle: float = 0.0,
        radius: float = math.inf,
        turn_about: tuple[float, float] | None = None,
        illegible: bool = False,
    ) -> Glyphs:
        """A turned or bent line, given the middle of its baseline; its glyphs as they are before that."""
        drawn = kind.set_text(text)
        glyphs = kind.draw(drawn)
        pivot = ((glyphs.coverage.shape[1] - 1) / 2, float(-glyphs.top))
        origin = baseline_middle
        if turn_about is not None:
            pivot = (pivot[0] + turn_about[0] - origin[0], pivot[1] + turn_about[1] - origin[1])
            origin = turn_about
        if angle == 0.0 and math.isinf(radius):
            origin = round(origin[0] - pivot[0]) + pivot[0], round(origin[1] - pivot[1]) + pivot[1]
        strip = Strip((0, 0, 0, 0), pivot, origin, angle, radius)
        coverage, left, top = lay_down(glyphs.coverage, strip)
        mark = self.mark(coverage, left, top, color)
        self._keep(drawn, glyphs, kind, mark, strip, (0, 0), illegible=illegible)
        return glyphs

    def _keep(
        self,
        text: str,
        glyphs: Glyphs,
        kind: Type,
        mark: Mark,
        frame: Strip,
        shift: tuple[int, int],
        *,
        illegible: bool,
    ) -> None:
        """Remember the words of a line whose glyphs lie at `shift` in the frame of the strip."""
        cap = cap_height(kind.face, kind.size) * kind.tall
        baseline = float(shift[1] - glyphs.top) - 0.5
        for word in split_words(text, glyphs, kind.face, kind.size, thermal=kind.thermal, spaced=kind.spaced):
            left, top, right, bottom = word.box
            box = left + shift[0], top + shift[1], right + shift[0], bottom + shift[1]
            strip = replace(frame, box=box)
            if not self._is_on_paper(strip):
                continue
            self.pieces.append(
                Piece(word.text, mark, strip, baseline, cap, self.block, illegible=illegible, lead=word.lead)
            )

    def _is_on_paper(self, strip: Strip) -> bool:
        """Whether all corners of the ink are; what runs over the edge is cut off, and has no label."""
        corners = strip.outline(2)
        return bool(((corners > -1) & (corners < (self.layout.width, self.layout.height))).all())


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


INKS: tuple[Color, ...] = ((170, 35, 45), (40, 60, 160), (95, 40, 130), (30, 110, 80), (25, 25, 28))


def choose_ink(printer: Printer) -> Color:
    """The colour of a stamp or an emblem."""
    return INKS[int(printer.rng.integers(len(INKS)))]


def print_stamp(
    printer: Printer, text: str, faces: tuple[str, str], center: tuple[float, float], size: tuple[float, float]
) -> None:
    """A stamp of at most this (width, height); who labels pages names some and skips others, so it is ignored."""
    color = choose_ink(printer)
    if chance(printer.rng, 0.4):
        _print_ring(printer, text, faces[1], center, min(size), color)
        return
    width, height = size
    angle = math.radians(float(printer.rng.uniform(-16, 16)))
    unit = max(1.0, text_width(text, faces[0], 100) / 100)
    letters = max(8, round(min(height * 0.42, width / unit)))
    kind = Type(faces[0], letters)
    baseline = center[0], center[1] + letters * 0.36
    glyphs = printer.bent(text, kind, baseline, color=color, angle=angle, turn_about=center, illegible=True)
    if chance(printer.rng, 0.7):
        pad, thick = round(letters * 0.4), max(1, letters // 12)
        frame_size = glyphs.coverage.shape[1] + 2 * pad, round(letters * 0.75) + 2 * pad
        frame = shapes.draw_frame(*frame_size, thick, rounded=False)
        pivot = (frame.shape[1] - 1) / 2, (frame.shape[0] - 1) / 2
        laid, left, top = lay_down(frame, Strip((0, 0, 1, 1), pivot=pivot, origin=center, angle=angle))
        printer.mark(laid, left, top, color)


def _print_ring(
    printer: Printer, text: str, face: str, center: tuple[float, float], height: float, color: Color
) -> None:
    outer = height * 0.48
    ring = max(12, round(2 * outer))
    frame = shapes.draw_frame(ring, ring, max(1, ring // 40), rounded=True)
    printer.mark(frame, center[0] - ring / 2, center[1] - ring / 2, color)
    radius, letters = outer * 0.62, max(MIN_SIZE, round(outer * 0.3))
    widest = 2 * radius * min(1.3, math.acos(max(-1.0, 1 - MAX_RISE / radius)))
    kind = Type(face, letters)
    name = fit_text(vocabulary.shop_name(printer.rng).upper(), face, letters, widest)
    printer.bent(name, kind, (center[0], center[1] - radius), color=color, radius=radius, illegible=True)
    middle = fit_text(text, face, letters, 1.2 * radius)
    printer.bent(middle, kind, (center[0], center[1] + letters * 0.5), color=color, illegible=True)
