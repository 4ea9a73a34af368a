"""Tables of forms and invoices: ruled in full, in part or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ocr.tools.synth import vocabulary
from ocr.tools.synth.content import Align
from ocr.tools.synth.phrases import chance, item_name, pick
from ocr.tools.synth.printer import Type
from ocr.tools.synth.sheet import Sheet


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
