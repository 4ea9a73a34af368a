"""What a receipt says, from the shop's name to the farewell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ocr.tools.synth import phrases, vocabulary
from ocr.tools.synth.content import Align, Cell, Line, Style
from ocr.tools.synth.item_table import write_items
from ocr.tools.synth.phrases import chance, number, pick


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
    name = phrases.shop_name(rng)
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
    lines += [pick(rng, phrases.SLOGANS)] if chance(rng, 0.15) else []
    street = f"{pick(rng, ('No. ', 'Lot ', 'NO.', ''))}{int(rng.integers(1, 400))}, {pick(rng, phrases.STREETS)},"
    town = f"{number(rng, 5)} {pick(rng, phrases.TOWNS)}"
    more = [f"{pick(rng, phrases.STREETS)}," for _ in range(int(rng.integers(0, 3)))]
    lines += [street, *more, town]
    return [line.upper() for line in lines] if chance(rng, 0.5) else lines


def _title(rng: np.random.Generator) -> list[Line]:
    title = pick(rng, phrases.TITLES)
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
        ("Date", f"{phrases.date(rng)} {phrases.time(rng)}" if chance(rng, 0.3) else phrases.date(rng)),
        ("Time", phrases.time(rng)),
        ("Cashier", pick(rng, phrases.PERSONS)),
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
    return [Line("stamp", (Cell(pick(rng, phrases.STAMPS)),), scale=float(rng.uniform(3.5, 5.5)))]


def _footer(rng: np.random.Generator) -> list[Line]:
    align: Align = "center" if chance(rng, 0.8) else "left"
    rows: list[Line] = []
    for _ in range(int(rng.integers(1, 5))):
        farewell = pick(rng, phrases.FAREWELLS)
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
