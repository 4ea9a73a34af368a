"""An invoice: who sells, who buys, a table of items, totals, and how to pay."""

from __future__ import annotations

import numpy as np

from ocr.tools.synth import shapes, vocabulary
from ocr.tools.synth.form import print_extras
from ocr.tools.synth.letter import print_letterhead
from ocr.tools.synth.printer import Type
from ocr.tools.synth.sheet import Sheet, TableStyle, column_edges, print_table
from ocr.tools.synth.vocabulary import chance, item_name, number, pick

_HEADS = (
    ("Description", "Qty", "Unit price", "Amount"),
    ("Item", "Description", "Qty", "Price", "Total"),
    ("Description", "Code", "Qty", "Unit", "Rate", "Tax", "Amount"),
    ("Service", "Hours", "Rate", "Amount"),
)


def write_invoice(sheet: Sheet) -> None:
    """One page from the letterhead to the bank."""
    rng = sheet.rng
    margin = float(rng.uniform(0.05, 0.11)) * sheet.width
    left, right = margin, sheet.width - margin
    y = print_letterhead(sheet, left, right, float(rng.uniform(2.5, 6.0)))
    y = _title(sheet, left, right, y)
    y = _parties(sheet, left, right, y)
    y, total = _items(sheet, left, right, y)
    y = _totals(sheet, right, y, total)
    y = _terms(sheet, left, right, y)
    print_extras(sheet, left, right, y)


def _title(sheet: Sheet, left: float, right: float, y: float) -> float:
    rng = sheet.rng
    kind = sheet.kind(sheet.faces.headline, float(rng.uniform(1.4, 2.8)))
    title = pick(
        rng,
        (vocabulary.HEADINGS[0], "INVOICE", "Invoice", "QUOTATION", "Pro forma invoice", "CREDIT NOTE", "STATEMENT"),
    )
    height = kind.size / sheet.em
    if chance(rng, 0.15):
        sheet.bar(left, y - height, right, y + 0.4 * height)
        sheet.text(title, left + 0.6, y, kind, white=True)
    else:
        align = ("left", "center", "right")[int(rng.integers(3))]
        x = {"left": left, "center": (left + right) / 2, "right": right}[align]
        sheet.text(title, x, y, kind, align)  # type: ignore[arg-type]
    sheet.next_block()
    return y + float(rng.uniform(1.5, 3.0))


def _parties(sheet: Sheet, left: float, right: float, y: float) -> float:
    """The buyer's address next to numbers and dates, in a box in some cases."""
    rng = sheet.rng
    kind, bold = sheet.kind(sheet.faces.typed), sheet.kind(sheet.faces.bold, float(rng.uniform(0.75, 1.0)))
    pitch = float(rng.uniform(1.25, 1.6)) * sheet.tall
    middle = left + (right - left) * float(rng.uniform(0.5, 0.62))
    top = y
    sheet.text(pick(rng, ("Bill to:", "Sold to", "Customer:", "INVOICE TO")), left + 0.4, y, bold)
    for line in (vocabulary.firm(rng), vocabulary.person(rng), *vocabulary.address(rng)):
        y += pitch
        sheet.text(sheet.fit(line, kind, middle - left - 1), left + 0.4, y, kind)
    sheet.next_block()
    row = top
    tab = middle + (right - middle) * float(rng.uniform(0.4, 0.55))
    for name in ("Invoice No.", "Date", "Customer No.", "Order No.", "Terms", "Due date")[: int(rng.integers(2, 7))]:
        fill = vocabulary.long_date(rng) if "ate" in name else vocabulary.code(rng)
        end = sheet.text(name + (":" if chance(rng, 0.6) else ""), middle + 0.4, row, bold)
        x = max(tab, end + 0.5)
        sheet.text(sheet.fit(fill, kind, right - x), x, row, kind)
        row += pitch
    if chance(rng, 0.3):
        sheet.box(left, top - 1.3, middle - 0.8, max(y, row) + 0.6)
        sheet.box(middle, top - 1.3, right, max(y, row) + 0.6)
    sheet.next_block()
    return max(y, row) + float(rng.uniform(1.5, 3.0))


def _items(sheet: Sheet, left: float, right: float, y: float) -> tuple[float, float]:
    rng = sheet.rng
    heads = _HEADS[int(rng.integers(len(_HEADS)))]
    edges = column_edges(sheet, left, right, len(heads), float(rng.uniform(2.0, 3.5)))
    rows: list[list[str]] = []
    total = 0.0
    style = TableStyle.choose(sheet)
    for _ in range(min(int(rng.integers(2, 16)), int((sheet.height - y - 14) / style.pitch))):
        price, count = round(float(rng.lognormal(3.5, 1.2)), 2), int(rng.integers(1, 30))
        total += price * count
        middle = [vocabulary.code(rng) for _ in range(len(heads) - 4)]
        name = f"{item_name(rng, chance(rng, 0.2))} {pick(rng, vocabulary.PROSE)}"
        rows.append([name, *middle, str(count), f"{price:,.2f}", f"{price * count:,.2f}"])
    body = sheet.kind(sheet.faces.typed, float(rng.choice([0.8, 0.9, 1.0])))
    kinds = sheet.kind(sheet.faces.bold, float(rng.uniform(0.75, 1.0))), body
    return print_table(sheet, edges, y, heads, rows, kinds, style), total


def _totals(sheet: Sheet, right: float, y: float, total: float) -> float:
    rng = sheet.rng
    kind, bold = sheet.kind(sheet.faces.typed), sheet.kind(sheet.faces.bold, float(rng.uniform(1.0, 1.4)))
    unit = pick(rng, ("", "$", "EUR ", "USD ", "£"))
    left = right - float(rng.uniform(14, 22))
    lines = [("Subtotal", total), ("Discount", 0.0), ("Tax 8 %", total * 0.08), ("Shipping", 12.5)]
    kept = [line for line in lines if chance(rng, 0.6)]
    for label, amount in [*kept, ("TOTAL" if chance(rng, 0.5) else "Amount due", total * 1.08)]:
        y += float(rng.uniform(1.4, 1.8)) * sheet.tall
        face: Type = bold if amount == total * 1.08 else kind
        sheet.next_block()
        figure = f"{unit}{amount:,.2f}"
        sheet.text(figure, right - 0.35, y, face, "right")
        free = right - 1 - sheet.width_of(figure, face)
        sheet.text(label, min(left, free - sheet.width_of(label, face)), y, face)
    if chance(rng, 0.5):
        sheet.rule(left, y + 0.4, right)
    sheet.next_block()
    return y + float(rng.uniform(1.5, 3.0))


def _terms(sheet: Sheet, left: float, right: float, y: float) -> float:
    """Terms and bank in small print; a code next to them in some cases."""
    rng = sheet.rng
    if y > sheet.height - 8:
        return y
    small = sheet.kind(sheet.faces.printed, float(rng.uniform(0.6, 0.85)))
    pitch = small.size / sheet.em * 1.4 * sheet.tall
    width = (right - left) * float(rng.uniform(0.45, 0.75))
    y = sheet.paragraph(vocabulary.prose(rng, int(rng.integers(8, 40))), left, y, width, small, pitch)
    for line in (f"Bank: {vocabulary.firm(rng)}", f"Account: {number(rng, 4)} {number(rng, 4)} {number(rng, 4)}"):
        sheet.text(line, left, y, small)
        y += pitch
    if chance(rng, 0.35) and y < sheet.height - 8:
        code = shapes.draw_matrix(rng, max(25, round(6 * sheet.em)))
        if chance(rng, 0.5):
            code = shapes.draw_barcode(rng, max(8, round(3 * sheet.em)), sheet.em)
        code = np.ascontiguousarray(code[:, : round(0.4 * (right - left) * sheet.em)])
        sheet.printer.mark(code, (right - 1) * sheet.em - code.shape[1], y * sheet.em)
        y += code.shape[0] / sheet.em + 1
    return y
