"""What a receipt says, from the shop's name to the farewell: lines of cells, before anything has a size in pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from ocr.tools.synth import vocabulary
from ocr.tools.synth.fonts import FAMILIES, dejavu_face
from ocr.tools.synth.layout import Align
from ocr.tools.synth.vocabulary import chance, number, pick

Kind = Literal["text", "gap", "rule", "dashes", "frame", "barcode", "matrix", "logo", "stamp", "arch"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its slot, in parts of the width of the print. Signs that only decorate have no label."""

    text: str
    left: float = 0.0
    right: float = 1.0
    align: Align = "left"
    labelled: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One line of print. `scale` is the size of its text, for other kinds its height, both in lines."""

    kind: Kind = "text"
    cells: tuple[Cell, ...] = ()
    scale: float = 1.0
    bold: bool = False
    inverted: bool = False
    headline: bool = False
    second: bool = False
    """Set in the other face of the receipt."""
    stretch: float = 1.0
    """Receipt printers set a line twice as high as the others."""
    underlined: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """The typography of a receipt."""

    regular: str
    bold: str
    headline: str
    second: str
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
    regular, bold = _faces(rng, family)
    headline = _faces(rng, "headline")[0] if chance(rng, 0.4) else bold
    second = _faces(rng, pick(rng, ("mono", "sans", "serif")))[int(rng.integers(2))] if chance(rng, 0.3) else regular
    mono = family == "mono"
    return Style(
        regular=regular,
        bold=bold,
        headline=headline,
        second=second,
        columns=int(rng.integers(25, 44)),
        tall=float(rng.uniform(1.05, 1.45)) if mono and chance(rng, 0.6) else 1.0,
        # Half of the real receipts leave no space between the labels of one line and the next.
        spacing=float(rng.uniform(1.07, 1.5)),
        thermal=mono and chance(rng, 0.6),
        margin_em=float(rng.uniform(0.5, 3.0)),
        right_totals=chance(rng, 0.4),
        upper=chance(rng, 0.6),
        currency=pick(rng, vocabulary.CURRENCIES),
    )


def _faces(rng: np.random.Generator, family: str) -> tuple[str, str]:
    return FAMILIES[family][int(rng.integers(len(FAMILIES[family])))]


# Latin letters are replaced one by one, so that shapes and widths vary and the layout stays. The words mean nothing:
# a detector does not read them. Only scripts that all DejaVu faces have, and that run from left to right without
# joining, are here: anything else needs typefaces that no installed package brings.
SCRIPT_SHARE = 0.06
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = {
    "cyrillic": "абцдефгхийклмнопщрстувжьыз",
    "greek": "αβψδεφγηιξκλμνοπθρστυωώχύζ",
    "armenian": "աբցդեֆգհիջկլմնօպքրստովւխյզ",
    "georgian": "აბცდეფგჰიჯკლმნოპყრსტუვწხჟზ",
}
# Capitals of Georgian are in no typeface here, and few texts use them.
_CAPITALS = {script: letters if script == "georgian" else letters.upper() for script, letters in _LETTERS.items()}
TABLES = {script: str.maketrans(_LATIN + _LATIN.upper(), _LETTERS[script] + _CAPITALS[script]) for script in _LETTERS}
_FOREIGN = frozenset("".join((*_LETTERS.values(), *_CAPITALS.values())))


def in_some_script(rng: np.random.Generator, style: Style, rows: list[Line]) -> tuple[Style, list[Line]]:
    """The receipt as it is, or in a few cases in another script and in typefaces that have it."""
    if not chance(rng, SCRIPT_SHARE):
        return style, rows
    table = TABLES[pick(rng, tuple(TABLES))]
    written = [
        replace(row, cells=tuple(replace(cell, text=cell.text.translate(table)) for cell in row.cells)) for row in rows
    ]
    regular, bold, headline, second = map(dejavu_face, (style.regular, style.bold, style.headline, style.second))
    return replace(style, regular=regular, bold=bold, headline=headline, second=second), written


def language_of(text: str) -> str:
    """The code for an annotation: English, or undetermined (BCP 47) for letters of another script.

    >>> language_of("Tea 4.20"), language_of("τεα 4.20")
    ('en', 'und')
    """
    return "en" if _FOREIGN.isdisjoint(text) else "und"


Slot = tuple[float, float, Align]

_FIGURES = {
    "Qty": ("Qty", "QTY", "Qty."),
    "Price": ("Price", "S/Price", "U.Price", "U/P", "RM"),
    "Disc": ("Disc", "DISC%", "Disc."),
    "Amount": ("Amount", "Total", "AMOUNT", "Amt (RM)", "Amount(RM)", "RM"),
    "Tax": ("Tax", "TAX", "Code"),
}


def write_items(rng: np.random.Generator, style: Style, prices: Sequence[float]) -> list[Line]:
    """The head of the table, if it has one, and its lines."""
    names = [name for name, share in (("Qty", 0.75), ("Price", 0.6), ("Disc", 0.15)) if chance(rng, share)]
    names += ["Amount", "Tax"] if chance(rng, 0.3) else ["Amount"]
    over = chance(rng, 0.55)
    slots = _slots(rng, names, 0.3 if over else 0.45)
    joined = over and chance(rng, 0.3)
    rows = _heads(rng, names, slots) if chance(rng, 0.7) else []
    for price in prices:
        item = vocabulary.item_name(rng, style.upper)
        count = int(rng.integers(1, 6))
        figures = _figures(rng, style, names, price, count)
        code = number(rng, int(rng.integers(4, 13))) if chance(rng, 0.6) else ""
        if not over:
            rows.append(_row((item, *figures), slots))
            continue
        rows.append(Line("text", (Cell(f"{code} {item}".strip() if joined else item),), bold=chance(rng, 0.05)))
        rows += (
            [Line("text", (Cell(f"- {vocabulary.item_name(rng, style.upper)}", 0.05),))] if chance(rng, 0.06) else []
        )
        first = f"{count} {pick(rng, ('X', 'x', '@', 'pc @'))} {price / count:.2f}" if joined else code
        rows.append(_row((first, *figures), slots))
    return rows


def _slots(rng: np.random.Generator, names: Sequence[str], first: float) -> list[Slot]:
    """The column of names, then one of each figure; the tax code is narrow."""
    weights = np.array([{"Qty": 0.5, "Disc": 0.6, "Tax": 0.45}.get(name, 1.0) for name in names])
    weights *= rng.uniform(0.8, 1.25, size=len(names))
    start = min(first, 1 - 0.13 * len(names)) * float(rng.uniform(0.85, 1.1))
    edges = start + np.concatenate([[0.0], np.cumsum(weights / weights.sum())]) * (1 - start)
    align: Align = "right" if chance(rng, 0.8) else "left"
    gap = float(rng.uniform(0.015, 0.04))
    slots: list[Slot] = [(float(rng.choice([0.0, 0.0, 0.03])), start - gap, "left")]
    slots += [(float(left), float(right) - gap, align) for left, right in pairwise(edges)]
    slots[-1] = (slots[-1][0], 1.0, slots[-1][2])
    return slots


def _heads(rng: np.random.Generator, names: Sequence[str], slots: Sequence[Slot]) -> list[Line]:
    first = pick(rng, ("Item", "Description", "ITEM", "Code/Desc", "Product"))
    row = _row((first, *(pick(rng, _FIGURES[name]) for name in names)), slots, bold=chance(rng, 0.4))
    rule = Line("dashes" if chance(rng, 0.3) else "rule", scale=0.7)
    rows = [row, rule] if chance(rng, 0.6) else [row]
    return [rule, *rows] if chance(rng, 0.3) else rows


def _figures(rng: np.random.Generator, style: Style, names: Sequence[str], price: float, count: int) -> tuple[str, ...]:
    unit = style.currency if "Price" not in names else ""
    texts = {
        "Qty": str(count),
        "Price": f"{price / count:.2f}",
        "Disc": "0.00",
        "Amount": f"{unit}{price:.2f}",
        "Tax": pick(rng, ("SR", "S", "*S", "ZRL")),
    }
    return tuple(texts[name] for name in names)


def _row(texts: Sequence[str], slots: Sequence[Slot], *, bold: bool = False) -> Line:
    return Line("text", tuple(Cell(text, *slot) for text, slot in zip(texts, slots, strict=True)), bold=bold)


def write_receipt(rng: np.random.Generator, style: Style) -> list[Line]:
    """The lines of one receipt, about 20 to 80 regions of text."""
    count = int(rng.integers(1, 9)) if chance(rng, 0.87) else int(rng.integers(9, 22))
    prices = [round(float(rng.lognormal(2.2, 0.9)), 2) for _ in range(count)]
    total = sum(prices)
    parts = [
        _header(rng),
        _meta(rng),
        write_items(rng, style, prices),
        _totals(rng, style, total),
        _tax_table(rng, total) if chance(rng, 0.45) else [],
        _stamp(rng) if chance(rng, 0.18) else [],
        _footer(rng),
    ]
    rule = Line("dashes" if chance(rng, 0.25) else "rule", scale=float(rng.uniform(0.5, 1.1)))
    rows: list[Line] = [Line("gap", scale=float(rng.uniform(1, 7)))] if chance(rng, 0.45) else []
    for part in filter(None, parts):
        rows += part
        rows += [rule] if chance(rng, 0.6) else []
        rows += [Line("gap", scale=float(rng.uniform(0.2, 2.0)))] if chance(rng, 0.5) else []
    if chance(rng, 0.4):
        rows.append(Line("gap", scale=float(rng.uniform(1, 6))))
    return [replace(row, cells=tuple(cell for cell in row.cells if cell.text)) for row in rows]


def _line(text: str, align: Align = "center", scale: float = 1.0, *, bold: bool = False) -> Line:
    return Line("text", (Cell(text, align=align),), scale, bold=bold)


def _pair(left: str, right: str, split: float = 0.6) -> Line:
    return Line("text", (Cell(left, 0.0, split), Cell(right, split + 0.02, 1.0, "right")))


def _header(rng: np.random.Generator) -> list[Line]:
    align: Align = "center" if chance(rng, 0.78) else "left"
    rows = _shop(rng, align)
    lines = _address(rng)
    tel = f"{pick(rng, ('TEL: ', 'Tel ', 'TEL : ', 'Phone: '))}{number(rng, 2)}-{number(rng, 7)}"
    if chance(rng, 0.25):
        # Two numbers side by side are two labels.
        rows_tel = [Line("text", (Cell(f"{tel}   FAX: {number(rng, 2)}-{number(rng, 7)}", align=align),))]
    else:
        rows_tel = [_line(tel, align)] if chance(rng, 0.6) else []
    if chance(rng, 0.5):
        lines.append(f"GST {pick(rng, ('ID', 'Reg No', 'ID No'))}{pick(rng, (': ', ' : ', ' '))}{number(rng, 12)}")
    if chance(rng, 0.2):
        lines.append(f"{pick(rng, ('Email: ', ''))}{pick(rng, vocabulary.PROSE)}@{pick(rng, vocabulary.PROSE)}.example")
    small = float(rng.choice([0.85, 1.0, 1.0]))
    bold = chance(rng, 0.12)
    rows += [*(_line(line, align, small, bold=bold) for line in lines), *rows_tel]
    return rows + (_title(rng) if chance(rng, 0.75) else [])


def _shop(rng: np.random.Generator, align: Align) -> list[Line]:
    """A note typed on top, the sign of the shop, its name in one or two lines or on an arch."""
    rows: list[Line] = []
    if chance(rng, 0.12):
        note = pick(rng, (number(rng, int(rng.integers(3, 8))), vocabulary.person(rng).lower(), "R", "COPY"))
        rows = [Line("text", (Cell(note, align=align),), float(rng.uniform(1.2, 2.0)), second=True)]
        rows.append(Line("gap", scale=float(rng.uniform(0.5, 3))))
    name = vocabulary.shop_name(rng)
    if chance(rng, 0.25):
        rows += [Line("logo", scale=float(rng.uniform(2.0, 5.0))), Line("gap", scale=0.4)]
    size = float(rng.uniform(1.0, 1.9))
    if chance(rng, 0.12):
        rows.append(Line("arch", (Cell(name, 0.08, 0.92, "center"),), scale=min(size, 1.8), headline=True))
    else:
        words = name.split()
        parts = [name] if size < 1.4 or len(words) < 3 else [" ".join(words[:2]), " ".join(words[2:])]
        stretch = 1.6 if chance(rng, 0.15) else 1.0
        rows += [Line("text", (Cell(part, align=align),), size, headline=True, stretch=stretch) for part in parts]
    return rows


def _address(rng: np.random.Generator) -> list[str]:
    lines = [f"({number(rng, 6)}-{pick(rng, ('M', 'T', 'K'))})"] if chance(rng, 0.6) else []
    lines += [pick(rng, vocabulary.SLOGANS)] if chance(rng, 0.15) else []
    street = f"{pick(rng, ('No. ', 'Lot ', 'NO.', ''))}{int(rng.integers(1, 400))}, {pick(rng, vocabulary.STREETS)},"
    town = f"{number(rng, 5)} {pick(rng, vocabulary.TOWNS)}"
    more = [f"{pick(rng, vocabulary.STREETS)}," for _ in range(int(rng.integers(0, 3)))]
    lines += [street, *more, town]
    return [line.upper() for line in lines] if chance(rng, 0.5) else lines


def _title(rng: np.random.Generator) -> list[Line]:
    title = pick(rng, vocabulary.HEADINGS)
    gap = Line("gap", scale=float(rng.uniform(0.2, 1.0)))
    if chance(rng, 0.15):
        # A bar across the receipt, or one as long as its text.
        edge = 0.0 if chance(rng, 0.5) else 0.25
        return [gap, Line("text", (Cell(title, edge, 1 - edge, align="center"),), 1.15, bold=True, inverted=True)]
    underlined = chance(rng, 0.2)
    row = Line("text", (Cell(title, align="center"),), float(rng.uniform(1.0, 1.5)), bold=True, underlined=underlined)
    return [gap, row]


def _meta(rng: np.random.Generator) -> list[Line]:
    mark = pick(rng, (": ", " ", "# ", " : ", ":"))
    entries = [
        (pick(rng, ("Invoice", "Receipt", "Doc No", "Bill No.")), pick(rng, ("CS", "INV", "R", "")) + number(rng, 7)),
        ("Date", f"{vocabulary.date(rng)} {vocabulary.time(rng)}" if chance(rng, 0.3) else vocabulary.date(rng)),
        ("Time", vocabulary.time(rng)),
        ("Cashier", pick(rng, vocabulary.PERSONS)),
        ("Table", str(int(rng.integers(1, 60)))),
        (pick(rng, ("Terminal", "Counter", "Pax(s)", "Ref.")), number(rng, 3)),
        ("Salesperson", ""),
    ]
    kept = [entry for entry in entries if chance(rng, 0.65)]
    upper = chance(rng, 0.3)
    texts = [(name.upper() if upper else name, value) for name, value in kept]
    layout = float(rng.random())
    if layout < 0.35:
        joined = [f"{name}{mark}{value}" for name, value in texts]
        return [_pair(left, right, 0.54) for left, right in zip(joined[::2], [*joined[1::2], ""], strict=False)]
    if layout < 0.65:
        tab = float(rng.uniform(0.22, 0.4))
        wide = chance(rng, 0.5)
        colon = (Cell(":", tab, tab + 0.03),) if wide else ()
        start = tab + 0.09 if wide else tab
        values = [value if wide else f"{pick(rng, (':', ': '))}{value}" for _, value in texts]
        return [
            Line("text", (Cell(name, 0, tab - 0.02), *colon, Cell(value, start)))
            for (name, _), value in zip(texts, values, strict=True)
        ]
    align: Align = "left" if chance(rng, 0.8) else "center"
    return [_line(f"{name}{mark}{value}", align) for name, value in texts]


def _totals(rng: np.random.Generator, style: Style, total: float) -> list[Line]:
    cash = float(np.ceil(total / 10) * 10)
    lines = [
        (pick(rng, ("Subtotal", "Sub Total", "Total Sales (Excluding GST)", "Total Excl. of GST")), total),
        ("Discount", 0.0),
        (pick(rng, ("GST 6%", "Total GST", "Tax")), total * 0.06),
        (pick(rng, ("Service charge 10%", "Svc Chg")), total * 0.1),
    ]
    kept = [line for line in lines if chance(rng, 0.55)]
    name = pick(rng, ("TOTAL", "Total", "Total Sales (Inclusive of GST)", "Net Total", "Total Payable"))
    last = [("Rounding", 0.02), (pick(rng, ("CASH", "Cash", "VISA", "Tendered")), cash), ("Change", cash - total)]
    kept += [(name, total), *(line for line in last if chance(rng, 0.7))]
    strong = float(rng.uniform(1.0, 1.7)) if chance(rng, 0.5) else 1.0
    stretch = 1.7 if chance(rng, 0.2) else 1.0
    colon = pick(rng, ("", "", ":", " :"))
    split = float(rng.uniform(0.6, 0.74))
    rows: list[Line] = []
    for label, amount in kept:
        cells = _total_cells(rng, style, f"{label}{colon}", f"{amount:.2f}", split)
        main = label == name
        rows.append(Line("text", cells, strong if main else 1.0, bold=main, stretch=stretch if main else 1.0))
    return rows


def _total_cells(rng: np.random.Generator, style: Style, label: str, amount: str, split: float) -> tuple[Cell, ...]:
    unit = style.currency.strip()
    if style.right_totals:
        return Cell(label, 0.05, split - 0.03, "right"), Cell(f"{style.currency}{amount}", split, 1.0, "right")
    if unit and style.upper:
        return Cell(label, 0, split - 0.02), Cell(unit, split, split + 0.1), Cell(amount, split + 0.12, 1.0, "right")
    return Cell(label, 0.0, split), Cell(f"{style.currency}{amount}", split + 0.02, 1.0, "right")


def _tax_table(rng: np.random.Generator, total: float) -> list[Line]:
    shift = float(rng.uniform(0.0, 0.08))
    slots: tuple[tuple[float, float, Align], ...] = (
        (shift, 0.3, "left"),
        (0.32 + shift, 0.45, "left"),
        (0.48, 0.74 - shift, "right"),
        (0.76, 1.0 - shift, "right"),
    )
    unit = pick(rng, ("", " (RM)", "(RM)"))
    heads = (pick(rng, ("Tax code", "GST Summary")), "%", f"{pick(rng, ('Amt', 'Amount'))}{unit}", f"Tax{unit}")
    rates = (("SR", 6), ("ZR", 0))[: int(rng.integers(1, 3))]
    texts = [heads, *((code, str(rate), f"{total:.2f}", f"{total * rate / 100:.2f}") for code, rate in rates)]
    rows = [_line("GST SUMMARY", "left", bold=True)] if chance(rng, 0.6) else []
    for index, row in enumerate(texts):
        cells = tuple(Cell(text, *slot) for text, slot in zip(row, slots, strict=True))
        rows.append(Line("text", cells, bold=index == 0 and chance(rng, 0.5)))
    frame = Line("frame", scale=0.5)
    return [frame, *rows, frame] if chance(rng, 0.35) else rows


def _stamp(rng: np.random.Generator) -> list[Line]:
    return [Line("stamp", (Cell(pick(rng, vocabulary.STAMPS)),), scale=float(rng.uniform(3.5, 5.5)))]


def _footer(rng: np.random.Generator) -> list[Line]:
    align: Align = "center" if chance(rng, 0.8) else "left"
    rows: list[Line] = []
    for _ in range(int(rng.integers(1, 5))):
        farewell = pick(rng, vocabulary.FAREWELLS)
        farewell = farewell.upper() if chance(rng, 0.4) else farewell
        if chance(rng, 0.12):
            stars = pick(rng, ("*****", "-----", "====="))
            sides = Cell(stars, 0.0, 0.2, "right", labelled=False), Cell(stars, 0.8, 1.0, labelled=False)
            rows.append(Line("text", (sides[0], Cell(farewell, 0.22, 0.78, "center"), sides[1])))
        else:
            rows.append(_line(farewell, align, float(rng.choice([0.85, 1.0])), bold=chance(rng, 0.15)))
    if chance(rng, 0.2):
        words = vocabulary.prose(rng, int(rng.integers(10, 40)))
        rows += [_line(" ".join(words[at : at + 6]), "left", 0.9) for at in range(0, len(words), 6)]
    if chance(rng, 0.25):
        rows += [Line("gap", scale=0.5), Line("barcode", scale=float(rng.uniform(1.8, 3.0)))]
        rows.append(_line(number(rng, 12), scale=0.9))
    elif chance(rng, 0.15):
        rows += [Line("gap", scale=0.5), Line("matrix", scale=float(rng.uniform(4.0, 6.0)))]
    return rows
