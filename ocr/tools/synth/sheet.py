"""A sheet of paper to write a document on: text with labels, rules, boxes and tables, in ems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth import shapes, vocabulary
from ocr.tools.synth.fonts import FAMILIES
from ocr.tools.synth.handwriting import draw_signature, handwriting
from ocr.tools.synth.layout import WORD, Align, Color
from ocr.tools.synth.printer import MIN_SIZE, WHITE, Printer, Type
from ocr.tools.synth.text_path import ink_box
from ocr.tools.synth.vocabulary import chance, item_name, pick

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
        """Whether a line at y does not fit."""
        return y > self.height - 1.5

    def kind(self, face: str, size: float = 1.0, *, spaced: bool = False) -> Type:
        """A face at a size in ems."""
        return Type(face, max(MIN_SIZE, round(size * self.em)), tall=self.tall, spaced=spaced)

    def width_of(self, text: str, kind: Type) -> float:
        """In ems."""
        return kind.for_text(text).width(text) / self.em

    def fit(self, text: str, kind: Type, width: float) -> str:
        """As many of the words as there is room for; at least one."""
        words = text.split()
        while len(words) > 1 and self.width_of(" ".join(words), kind) > width:
            words.pop()
        return " ".join(words)

    def text(self, text: str, x: float, y: float, kind: Type, align: Align = "left", *, white: bool = False) -> float:
        """Print with the pen at x (or ending, or centred there) on the baseline y; where the pen ends."""
        kind = kind.for_text(text)
        width = self.width_of(text, kind)
        x -= {"left": 0.0, "center": width / 2, "right": width}[align]
        color = WHITE if white else None
        self.printer.text(text, kind, x * self.em, y * self.em, color=color, can_fail=not white)
        return x + width

    def dashes(self, text: str, x: float, y: float, kind: Type) -> None:
        """Signs that fill a line without being text."""
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
        """A signature over a line; it is illegible, so it is ignored."""
        thick = max(1, round(self.em * float(self.rng.uniform(0.06, 0.14))))
        drawn = draw_signature(self.rng, round(width * self.em), round(height * self.em), thick)
        self.ignored(drawn, x, y - height)

    def ignored(self, coverage: NDArray[np.uint8], x: float, y: float, color: Color | None = None) -> None:
        """A shape that can pass for text."""
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


@dataclass(frozen=True, slots=True)
class TableStyle:
    """What is drawn around the cells."""

    across: bool
    down: bool
    frame: bool
    white_head: bool
    zebra: bool
    pitch: float
    thick: float

    @classmethod
    def choose(cls, sheet: Sheet) -> TableStyle:
        """From bare columns to a full grid."""
        rng = sheet.rng
        full = chance(rng, 0.45)
        return cls(
            across=full or chance(rng, 0.4),
            down=full or chance(rng, 0.25),
            frame=full or chance(rng, 0.3),
            white_head=chance(rng, 0.15),
            zebra=chance(rng, 0.08),
            pitch=float(rng.uniform(1.3, 2.4)) * sheet.tall,
            thick=float(rng.uniform(0.05, 0.14)),
        )


def column_edges(sheet: Sheet, x0: float, x1: float, count: int, first: float) -> list[float]:
    """Where columns begin and the last one ends; the first is `first` times as wide as the others are on average."""
    shares = sheet.rng.uniform(0.8, 1.2, size=count)
    shares[0] *= first
    edges = [x0]
    for share in shares / shares.sum():
        edges.append(edges[-1] + (x1 - x0) * float(share))
    return edges


def print_table(
    sheet: Sheet,
    edges: Sequence[float],
    y: float,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    kinds: tuple[Type, Type],
    style: TableStyle,
) -> float:
    """A table whose head is set in the first kind and whose cells are in the second; the y of its bottom."""
    head_lines = [split_head(sheet, text, kinds[0], edges[at + 1] - edges[at] - 0.5) for at, text in enumerate(heads)]
    head_height = max(map(len, head_lines)) * 1.15 * sheet.tall + 0.5
    bottom = y + head_height + len(rows) * style.pitch
    if style.white_head:
        sheet.bar(edges[0], y, edges[-1], y + head_height)
    for at, lines in enumerate(head_lines):
        sheet.next_block()
        for row, text in enumerate(lines):
            middle = (edges[at] + edges[at + 1]) / 2
            sheet.text(text, middle, y + (row + 1) * 1.15 * sheet.tall, kinds[0], "center", white=style.white_head)
    for index, cells in enumerate(rows):
        top = y + head_height + index * style.pitch
        if style.zebra and index % 2:
            sheet.bar(edges[0], top, edges[-1], top + style.pitch, gray=215)
        _print_cells(sheet, edges, top + style.pitch * 0.5 + 0.36 * sheet.tall, cells, kinds[1])
        if style.across:
            sheet.rule(edges[0], top, edges[-1], style.thick)
    if style.down:
        for x in edges[1:-1]:
            sheet.upright(x, y, bottom, style.thick)
    if style.frame:
        sheet.box(edges[0], y, edges[-1], bottom, style.thick)
    elif style.across:
        sheet.rule(edges[0], bottom, edges[-1], style.thick)
    sheet.next_block()
    return bottom


def _print_cells(sheet: Sheet, edges: Sequence[float], baseline: float, cells: Sequence[str], kind: Type) -> None:
    for at, text in enumerate(cells):
        sheet.next_block()
        left, right = edges[at] + 0.35, edges[at + 1] - 0.35
        align: Align = "left" if at == 0 or not any(sign.isdigit() for sign in text) else "right"
        if set(text) == {"-"}:
            sheet.dashes(text, left, baseline, kind)
        elif text:
            fitted = sheet.fit(text, kind, right - left)
            if sheet.width_of(fitted, kind) > right - left:
                continue
            sheet.text(fitted, left if align == "left" else right, baseline, kind, align)


def split_head(sheet: Sheet, text: str, kind: Type, width: float) -> list[str]:
    """A heading in as many lines as its column needs; words that do not fit are left out."""
    lines: list[str] = []
    for word in text.split():
        if lines and sheet.width_of(f"{lines[-1]} {word}", kind) <= width:
            lines[-1] += f" {word}"
        elif sheet.width_of(word, kind) <= width:
            lines.append(word)
    return lines


def data_rows(sheet: Sheet, count: int, columns: int) -> list[list[str]]:
    """Names in the first column, then numbers, some of them missing."""
    rng = sheet.rng
    filled = float(rng.uniform(0.3, 1.0))
    rows: list[list[str]] = []
    for _ in range(count):
        name = vocabulary.phrase(rng, int(rng.integers(1, 4))) if chance(rng, 0.7) else ""
        row = [name or item_name(rng, chance(rng, 0.3))]
        for _ in range(columns - 1):
            empty = "-" * 5 if chance(rng, 0.1) else ""
            cell = vocabulary.amount(rng) if chance(rng, 0.8) else pick(rng, vocabulary.OPTIONS)
            row.append(cell if chance(rng, filled) else empty)
        rows.append(row)
    return rows
