"""A sheet of paper to write a document on: positions and sizes in ems, text with labels, rules and boxes without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth import shapes
from ocr.tools.synth.content import Align
from ocr.tools.synth.fonts import FAMILIES
from ocr.tools.synth.layout import Color
from ocr.tools.synth.pen import draw_signature, handwriting
from ocr.tools.synth.phrases import chance, pick
from ocr.tools.synth.printer import MIN_SIZE, WHITE, Printer, Type
from ocr.tools.synth.strip import ink_box
from ocr.tools.synth.units import WORD

# The face nearest to a typewriter's: monospaced, with serifs.
TYPEWRITER = "cmtt10.ttf"


@dataclass(frozen=True, slots=True)
class Faces:
    """The typefaces of a document: of what is printed on the form, and of what is filled in."""

    printed: str
    bold: str
    headline: str
    typed: str

    @classmethod
    def choose(cls, rng: np.random.Generator, typed_share: float) -> Faces:
        """Faces that go together; in `typed_share` of the documents a typewriter filled the form in."""
        family = FAMILIES[pick(rng, ("sans", "sans", "serif", "serif", "mono"))]
        printed, bold = family[int(rng.integers(len(family)))]
        headlines, monos = FAMILIES["headline"], FAMILIES["mono"]
        headline = headlines[int(rng.integers(len(headlines)))][0] if chance(rng, 0.3) else bold
        typed = printed
        if chance(rng, typed_share):
            typed = TYPEWRITER if chance(rng, 0.5) else monos[int(rng.integers(len(monos)))][0]
        return cls(printed, bold, headline, typed)


@dataclass(slots=True)
class Sheet:
    """The paper, and a printer that takes ems."""

    printer: Printer
    em: float
    width: float
    height: float
    faces: Faces
    tall: float = 1.0

    @property
    def rng(self) -> np.random.Generator:
        """The source of all choices."""
        return self.printer.rng

    def is_full(self, y: float) -> bool:
        """Whether there is no room for a line at y."""
        return y > self.height - 1.5

    def kind(self, face: str, size: float = 1.0, *, spaced: bool = False) -> Type:
        """A face at a size in ems."""
        return Type(face, max(MIN_SIZE, round(size * self.em)), tall=self.tall, spaced=spaced)

    def width_of(self, text: str, kind: Type) -> float:
        """In ems."""
        return kind.width(text) / self.em

    def fit(self, text: str, kind: Type, width: float) -> str:
        """As many of the words as there is room for; at least one."""
        words = text.split()
        while len(words) > 1 and self.width_of(" ".join(words), kind) > width:
            words.pop()
        return " ".join(words)

    def text(self, text: str, x: float, y: float, kind: Type, align: Align = "left", *, white: bool = False) -> float:
        """Print with the pen at x (or ending, or centred there) on the baseline y; where the pen ends."""
        width = self.width_of(text, kind)
        x -= {"left": 0.0, "center": width / 2, "right": width}[align]
        color = WHITE if white else None
        self.printer.text(text, kind, x * self.em, y * self.em, color=color, can_fail=not white)
        return x + width

    def dashes(self, text: str, x: float, y: float, kind: Type) -> None:
        """Signs that fill a line and that nobody reads."""
        self.printer.text(text, kind, x * self.em, y * self.em, labelled=False)

    def paragraph(
        self, words: Sequence[str], x: float, y: float, width: float, kind: Type, pitch: float, *, justify: bool = False
    ) -> float:
        """Set words in lines from the baseline y on; the baseline of the line after the last."""
        space = self.width_of(" ", kind)
        widths = [self.width_of(word, kind) for word in words]
        start = 0
        while start < len(words) and not self.is_full(y):
            end, used = start + 1, widths[start]
            while end < len(words) and used + space + widths[end] <= width:
                used += space + widths[end]
                end += 1
            gaps = end - start - 1
            if justify and gaps and end < len(words):
                self._justified(words[start:end], widths[start:end], x, y, (width - used) / gaps + space, kind)
            else:
                self.text(" ".join(words[start:end]), x, y, kind)
            start, y = end, y + pitch
        return y

    def _justified(self, words: Sequence[str], widths: list[float], x: float, y: float, gap: float, kind: Type) -> None:
        for word, width in zip(words, widths, strict=True):
            self.text(word, x, y, kind)
            x += width + gap

    def by_hand(self, text: str, x: float, y: float, size: float, right: float) -> None:
        """Handwriting, word by word, as far as there is room."""
        height = size * self.em
        thick = max(1, round(self.em * float(self.rng.uniform(0.06, 0.12))))
        color: Color = (40, 50, 120) if chance(self.rng, 0.3) else self.printer.ink
        baseline = (y + float(self.rng.uniform(-0.1, 0.1)) * size) * self.em
        end = 0
        for match in WORD.finditer(text):
            drawn = handwriting(self.rng, match[0], height, thick)
            box = ink_box(drawn)
            if box is None:
                continue
            edges = [max(0, round(edge)) for edge in box]
            drawn = np.ascontiguousarray(drawn[edges[1] : edges[3] + 1, edges[0] : edges[2] + 1])
            x += (0.4 if match.start() > end else 0.06) * size
            corner = x * self.em, baseline - drawn.shape[0]
            if x + drawn.shape[1] / self.em > right or not self.printer.is_free(drawn, *corner):
                return
            lead = text[end : match.start()] if end else None
            self.printer.shape(drawn, *corner, match[0], baseline, 0.7 * height, color=color, lead=lead)
            x, end = x + drawn.shape[1] / self.em, match.end()

    def signature(self, x: float, y: float, width: float, height: float) -> None:
        """A signature over a line; nobody can read it, so it is ignored."""
        thick = max(1, round(self.em * float(self.rng.uniform(0.06, 0.14))))
        drawn = draw_signature(self.rng, round(width * self.em), round(height * self.em), thick)
        self.ignored(drawn, x, y - height)

    def ignored(self, coverage: NDArray[np.uint8], x: float, y: float, color: Color | None = None) -> None:
        """A shape that may pass for text."""
        baseline = y * self.em + coverage.shape[0]
        self.printer.shape(coverage, x * self.em, y * self.em, "", baseline, 1.0, color=color, illegible=True)

    def rule(self, x0: float, y: float, x1: float, thick: float = 0.08) -> None:
        """A line from left to right."""
        size = max(1, round(thick * self.em)), max(1, round((x1 - x0) * self.em))
        self.printer.mark(np.full(size, 255, dtype=np.uint8), x0 * self.em, y * self.em)

    def drawn_rule(self, x0: float, y: float, x1: float) -> None:
        """A separator of any style: double, dashed, dotted."""
        self.printer.mark(
            shapes.draw_rule(self.rng, max(1, round((x1 - x0) * self.em)), self.em), x0 * self.em, y * self.em
        )

    def upright(self, x: float, y0: float, y1: float, thick: float = 0.08) -> None:
        """A line from top to bottom."""
        size = max(1, round((y1 - y0) * self.em)), max(1, round(thick * self.em))
        self.printer.mark(np.full(size, 255, dtype=np.uint8), x * self.em, y0 * self.em)

    def box(self, x0: float, y0: float, x1: float, y1: float, thick: float = 0.08) -> None:
        """A frame."""
        for y in (y0, y1):
            self.rule(x0, y, x1 + thick, thick)
        for x in (x0, x1):
            self.upright(x, y0, y1, thick)

    def bar(self, x0: float, y0: float, x1: float, y1: float, *, gray: int | None = None) -> None:
        """A filled area, to be printed on in white, or a tint to be printed on in black."""
        size = max(1, round((y1 - y0) * self.em)), max(1, round((x1 - x0) * self.em))
        color = None if gray is None else (gray, gray, gray)
        self.printer.mark(np.full(size, 255, dtype=np.uint8), x0 * self.em, y0 * self.em, color)

    def tick_box(self, x: float, y: float, size: float, *, ticked: bool) -> float:
        """A small box on the baseline, labelled as the word it stands for; where it ends."""
        side = max(5, round(size * self.em))
        box = np.zeros((side, side), dtype=np.uint8)
        cv2.rectangle(box, (0, 0), (side - 1, side - 1), 255, max(1, side // 10))
        if ticked:
            cv2.line(box, (1, 1), (side - 2, side - 2), 255, max(1, side // 8), cv2.LINE_AA)
            cv2.line(box, (1, side - 2), (side - 2, 1), 255, max(1, side // 8), cv2.LINE_AA)
        text = "\u2611" if ticked else "\u2610"
        self.printer.shape(box, x * self.em, y * self.em - side, text, y * self.em, float(side))
        return x + side / self.em

    def next_block(self) -> None:
        """What is printed from here on never shares a line with what was printed before."""
        self.printer.block += 1

    def sized(self, kind: Type, factor: float) -> Type:
        """The same face, larger or smaller."""
        return replace(kind, size=max(MIN_SIZE, round(kind.size * factor)))
