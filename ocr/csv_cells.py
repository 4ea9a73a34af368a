"""Cells of CSV tables that a spreadsheet opens."""

from __future__ import annotations

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def plain_cell(text: str) -> str:
    """A text as a cell: a quote goes before one that a spreadsheet would run as a formula.

    >>> plain_cell("page.jpg"), plain_cell("=1+1.jpg")
    ('page.jpg', "'=1+1.jpg")
    """
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
