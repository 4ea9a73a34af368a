"""The items of a receipt: one line each, or a name over a line of figures, in columns that differ from till to till."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ocr.tools.synth import phrases
from ocr.tools.synth.content import Align, Cell, Line, Style
from ocr.tools.synth.phrases import chance, number, pick

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
        item = phrases.item_name(rng, style.upper)
        count = int(rng.integers(1, 6))
        figures = _figures(rng, style, names, price, count)
        code = number(rng, int(rng.integers(4, 13))) if chance(rng, 0.6) else ""
        if not over:
            rows.append(_row((item, *figures), slots))
            continue
        rows.append(Line("text", (Cell(f"{code} {item}".strip() if joined else item),), bold=chance(rng, 0.05)))
        rows += [Line("text", (Cell(f"- {phrases.item_name(rng, style.upper)}", 0.05),))] if chance(rng, 0.06) else []
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
