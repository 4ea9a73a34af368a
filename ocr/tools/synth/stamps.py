"""Rubber stamps: a word in a turned frame, or a ring with a name along its arc."""

from __future__ import annotations

import math

from ocr.tools.synth import phrases, shapes
from ocr.tools.synth.fonts import fit_text, text_width
from ocr.tools.synth.layout import Color
from ocr.tools.synth.phrases import chance
from ocr.tools.synth.printer import MAX_RISE, MIN_SIZE, Printer, Type
from ocr.tools.synth.strip import Strip, lay_down

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
    name = fit_text(phrases.shop_name(printer.rng).upper(), face, letters, widest)
    printer.bent(name, kind, (center[0], center[1] - radius), color=color, radius=radius, illegible=True)
    middle = fit_text(text, face, letters, 1.2 * radius)
    printer.bent(middle, kind, (center[0], center[1] + letters * 0.5), color=color, illegible=True)
