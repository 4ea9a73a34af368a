"""The parts that sections of the report are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ocr.advisor.report.number_format import MISSING


def section(title: str, body: str) -> str:
    """A section under its heading; empty if it has no content."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def columns(*stacks: Sequence[str]) -> str:
    """Stacked cards in columns; empty columns are left out."""
    filled = [f'<div class="stack">{"".join(stack)}</div>' for stack in stacks if any(stack)]
    return f'<div class="columns n{len(filled)}">{"".join(filled)}</div>' if filled else ""


def card(title: str, body: str) -> str:
    """A card; empty if it has no content."""
    return f'<div class="card"><h3>{escape(title)}</h3>{body}</div>' if body else ""


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Large figures over their names; those that are missing are left out."""
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts if value != MISSING
    )
    return f'<dl class="tiles">{shown}</dl>' if shown else ""
