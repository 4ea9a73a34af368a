"""What a receipt says: lines of cells from the shop's name to the farewell, before anything has a size in pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ocr.tools.synth import phrases
from ocr.tools.synth.fonts import FAMILIES
from ocr.tools.synth.phrases import chance, number, pick

Align = Literal["left", "center", "right"]
Kind = Literal["text", "gap", "rule", "barcode", "matrix", "logo", "stamp", "arch"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its slot, in parts of the width of the print."""

    text: str
    left: float = 0.0
    right: float = 1.0
    align: Align = "left"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of print. `scale` is the size of its text, for other kinds its height, both in lines."""

    kind: Kind = "text"
    cells: tuple[Cell, ...] = ()
    scale: float = 1.0
    bold: bool = False
    inverted: bool = False
    headline: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """The typography of a receipt."""

    regular: str
    bold: str
    headline: str
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
    regular, bold = FAMILIES[family][int(rng.integers(len(FAMILIES[family])))]
    headlines = FAMILIES["headline"]
    headline = headlines[int(rng.integers(len(headlines)))][0] if chance(rng, 0.4) else bold
    mono = family == "mono"
    return Style(
        regular=regular,
        bold=bold,
        headline=headline,
        columns=int(rng.integers(26, 46)),
        tall=float(rng.uniform(1.05, 1.45)) if mono and chance(rng, 0.6) else 1.0,
        spacing=float(rng.uniform(1.12, 1.55)),
        thermal=mono and chance(rng, 0.6),
        margin_em=float(rng.uniform(0.8, 3.0)),
        right_totals=chance(rng, 0.4),
        upper=chance(rng, 0.6),
        currency=pick(rng, phrases.CURRENCIES),
    )


def write_receipt(rng: np.random.Generator, style: Style) -> list[Line]:
    """The lines of one receipt, about 20 to 80 regions of text."""
    rule = Line("rule", scale=float(rng.uniform(0.5, 1.1)))
    prices = [round(float(rng.lognormal(2.2, 0.9)), 2) for _ in range(int(rng.integers(2, 10)))]
    total = sum(prices)
    rows = [*_header(rng), *_meta(rng), rule, *_items(rng, style, prices), rule, *_totals(rng, style, total)]
    if chance(rng, 0.45):
        rows += [rule, *_tax_table(rng, total)]
    if chance(rng, 0.18):
        rows.append(Line("stamp", (Cell(pick(rng, phrases.STAMPS)),), scale=float(rng.uniform(3.5, 5.5))))
    rows += _footer(rng)
    return [replace(row, cells=tuple(cell for cell in row.cells if cell.text)) for row in rows]


def _centered(text: str, scale: float = 1.0, *, bold: bool = False, headline: bool = False) -> Line:
    return Line("text", (Cell(text, align="center"),), scale, bold=bold, headline=headline)


def _pair(left: str, right: str, split: float = 0.6, *, scale: float = 1.0, bold: bool = False) -> Line:
    cells = (Cell(left, 0.0, split), Cell(right, split + 0.02, 1.0, "right"))
    return Line("text", cells, scale, bold=bold)


def _header(rng: np.random.Generator) -> list[Line]:
    rows: list[Line] = []
    name = phrases.shop_name(rng)
    if chance(rng, 0.3):
        rows += [Line("logo", scale=float(rng.uniform(2.0, 4.0))), Line("gap", scale=0.4)]
    if chance(rng, 0.3):
        rows.append(
            Line("arch", (Cell(name, 0.08, 0.92, "center"),), scale=float(rng.uniform(1.2, 1.8)), headline=True)
        )
    else:
        rows.append(_centered(name, float(rng.uniform(1.1, 1.9)), bold=True, headline=True))
    if chance(rng, 0.25):
        rows.append(_centered(pick(rng, phrases.SLOGANS)))
    if chance(rng, 0.5):
        rows.append(_centered(f"({number(rng, 6)}-{pick(rng, ('M', 'T', 'K'))})"))
    rows.append(
        _centered(f"{pick(rng, ('No. ', 'Lot ', ''))}{int(rng.integers(1, 400))}, {pick(rng, phrases.STREETS)},")
    )
    rows.append(_centered(f"{number(rng, 5)} {pick(rng, phrases.TOWNS)}"))
    if chance(rng, 0.7):
        rows.append(_centered(f"{pick(rng, ('TEL: ', 'Tel ', 'Phone: '))}{number(rng, 2)}-{number(rng, 7)}"))
    if chance(rng, 0.5):
        rows.append(_centered(f"GST ID: {number(rng, 12)}"))
    title = pick(rng, phrases.TITLES)
    if chance(rng, 0.22):
        rows += [Line("gap", scale=0.3), Line("text", (Cell(title, align="center"),), 1.15, bold=True, inverted=True)]
    elif chance(rng, 0.6):
        rows.append(_centered(title, float(rng.uniform(1.0, 1.3)), bold=True))
    rows.append(Line("gap", scale=float(rng.uniform(0.3, 1.0))))
    return rows


def _meta(rng: np.random.Generator) -> list[Line]:
    mark = pick(rng, (": ", " ", "# ", " : "))
    entries = [
        f"Invoice{mark}{pick(rng, ('CS', 'INV', 'R', ''))}{number(rng, 7)}",
        f"Date{mark}{phrases.date(rng)}",
        f"Time{mark}{phrases.time(rng)}",
        f"Cashier{mark}{pick(rng, phrases.PERSONS)}",
        f"Table{mark}{int(rng.integers(1, 60))}",
        f"Terminal{mark}{number(rng, 3)}",
    ]
    kept = [entry for entry in entries if chance(rng, 0.75)]
    if chance(rng, 0.5):
        lefts, rights = kept[::2], [*kept[1::2], ""]
        return [_pair(left, right, 0.54) for left, right in zip(lefts, rights, strict=False)]
    if chance(rng, 0.4):
        split = [entry.split(mark, 1) for entry in kept]
        return [Line("text", (Cell(name, 0, 0.28), Cell(f": {value}", 0.3, 1.0))) for name, value in split]
    return [Line("text", (Cell(entry),)) for entry in kept]


def _items(rng: np.random.Generator, style: Style, prices: list[float]) -> list[Line]:
    table = int(rng.integers(4))
    unit = "" if table else style.currency
    rows: list[Line] = []
    if table:
        heads = (
            ("Qty", "Item", "Price", "Amount"),
            ("Item", "Qty", "S/Price", "Amount"),
            ("Description", "", "", "Total"),
        )
        rows = [_columns(table, heads[table - 1], bold=chance(rng, 0.5))]
        if chance(rng, 0.5):
            rows.append(Line("rule", scale=0.7))
    for price in prices:
        name, count = phrases.item_name(rng, style.upper), int(rng.integers(1, 6))
        each, amount = f"{price / count:.2f}", f"{unit}{price:.2f}"
        if table == 0:
            rows.append(_pair(name, amount, 0.7))
        elif table == 1:
            rows.append(_columns(1, (str(count), name, each, amount)))
        elif table == 2:
            rows += [Line("text", (Cell(name),)), _columns(2, (number(rng, 4), str(count), each, amount))]
        else:
            rows += [
                Line("text", (Cell(f"{number(rng, 8)} {name}"),)),
                _columns(3, (f"  {count} x {each}", "", "", amount)),
            ]
    return rows


# The slots of the item tables, by table, in parts of the width.
_SLOTS: dict[int, tuple[tuple[float, float, Align], ...]] = {
    1: ((0.0, 0.1, "left"), (0.13, 0.58, "left"), (0.6, 0.78, "right"), (0.8, 1.0, "right")),
    2: ((0.0, 0.3, "left"), (0.32, 0.45, "right"), (0.48, 0.7, "right"), (0.74, 1.0, "right")),
    3: ((0.04, 0.6, "left"), (0.6, 0.61, "left"), (0.62, 0.63, "left"), (0.66, 1.0, "right")),
    4: ((0.0, 0.3, "left"), (0.32, 0.45, "left"), (0.48, 0.72, "right"), (0.75, 1.0, "right")),
}


def _columns(table: int, texts: tuple[str, ...], *, bold: bool = False) -> Line:
    slots = _SLOTS[table]
    cells = (Cell(text.strip(), *slot) for text, slot in zip(texts, slots, strict=True))
    return Line("text", tuple(cells), bold=bold)


def _totals(rng: np.random.Generator, style: Style, total: float) -> list[Line]:
    rows: list[Line] = []
    cash = float(np.ceil(total / 10) * 10)
    lines = [("Subtotal", total), ("Discount", 0.0), ("GST 6%", total * 0.06), ("Service charge 10%", total * 0.1)]
    kept = [line for line in lines if chance(rng, 0.55)]
    last = [("Rounding", 0.02), ("CASH", cash), ("Change", cash - total)]
    kept += [("TOTAL", total), *(line for line in last if chance(rng, 0.7))]
    strong = float(rng.uniform(1.0, 1.6)) if chance(rng, 0.5) else 1.0
    for label, amount in kept:
        is_total = label == "TOTAL"
        value = f"{style.currency}{amount:.2f}"
        if style.right_totals:
            cells = (Cell(label, 0.2, 0.68, "right"), Cell(value, 0.7, 1.0, "right"))
            rows.append(Line("text", cells, strong if is_total else 1.0, bold=is_total))
        else:
            rows.append(_pair(label, value, scale=strong if is_total else 1.0, bold=is_total))
    return rows


def _tax_table(rng: np.random.Generator, total: float) -> list[Line]:
    rows = [Line("text", (Cell("GST SUMMARY"),), bold=True), _columns(4, ("Tax code", "%", "Amt", "Tax"))]
    rates = (("SR", 6), ("ZR", 0))[: int(rng.integers(1, 3))]
    texts = ((code, str(rate), f"{total:.2f}", f"{total * rate / 100:.2f}") for code, rate in rates)
    return [*rows, *(_columns(4, row) for row in texts)]


def _footer(rng: np.random.Generator) -> list[Line]:
    rows: list[Line] = [Line("gap", scale=float(rng.uniform(0.4, 1.5)))]
    for _ in range(int(rng.integers(1, 4))):
        farewell = pick(rng, phrases.FAREWELLS)
        rows.append(_centered(farewell.upper() if chance(rng, 0.4) else farewell, float(rng.choice([0.85, 1.0]))))
    if chance(rng, 0.3):
        rows += [Line("gap", scale=0.5), Line("barcode", scale=float(rng.uniform(1.8, 3.0)))]
        rows.append(_centered(number(rng, 12), 0.9))
    elif chance(rng, 0.15):
        rows += [Line("gap", scale=0.5), Line("matrix", scale=float(rng.uniform(4.0, 6.0)))]
    return rows
