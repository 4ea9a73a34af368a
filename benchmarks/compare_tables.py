"""Tables as text: what a benchmark has shown, what stands in a document, and the figures in which they differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.document_parts import table_lines

UNITS = {"ms": 1e-3, "s": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
FIGURE = re.compile(r"(?<![\w.])([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?: ?(ms|s|kB|MB|GB)\b)?")


@dataclass(frozen=True)
class TextTable:
    """Headings and rows of cells; the first cell of a row names it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> list[str]:
        """Lines of a document; lines of a cell follow each other."""
        cells = [[", ".join(filter(None, cell.split("\n"))) for cell in row] for row in self.rows]
        return table_lines(self.headings, cells)

    def pick(self, rows: str = "", columns: Sequence[str] = ()) -> TextTable:
        """Only the rows whose name matches, and only the first column and these."""
        chosen = [0, *(self.headings.index(name) for name in columns)] if columns else range(len(self.headings))
        kept = [row for row in self.rows if re.search(rows, row[0])]
        return TextTable(
            self.title,
            tuple(self.headings[index] for index in chosen),
            tuple(tuple(row[index] for index in chosen) for row in kept),
        )

    def cell(self, row: str, column: str) -> str:
        """One cell, by the names of its row and column."""
        (found,) = self.pick(f"^{re.escape(row)}$", (column,)).rows
        return found[1]


def parse_tables(text: str) -> list[TextTable]:
    """The tables of a document, without bold and code.

    >>> [table.rows for table in parse_tables("| | ms |\\n|---|---:|\\n| **maps** | `1.9` |")]
    [(('maps', '1.9'),)]
    """
    found = []
    for lines in re.findall(r"(?:^\|.*\|[ ]*$\n?){2,}", text, flags=re.MULTILINE):
        cells = [
            tuple(_without_marks(cell) for cell in line.strip().removeprefix("|").removesuffix("|").split("|"))
            for line in lines.splitlines()
        ]
        found.append(TextTable("", cells[0], tuple(cells[2:])))
    return found


def table_of(tables: Sequence[TextTable], title: str) -> TextTable:
    """The table with this beginning of its title."""
    found = [table for table in tables if table.title.startswith(title)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} tables begin with {title!r}: {[table.title for table in tables]}")
    return found[0]


def _without_marks(cell: str) -> str:
    return re.sub(r"\*\*|`", "", cell).strip()


def figures_of(cell: str) -> list[float]:
    """All numbers of a cell, in seconds and bytes where it has units.

    >>> figures_of("47.3 ms, 35 x"), figures_of("1,817 pages/s"), figures_of("640x640")
    ([0.0473, 35.0], [1817.0], [640.0])
    """
    return [float(number.replace(",", "")) * UNITS.get(unit, 1.0) for number, unit in FIGURE.findall(cell)]


def differences(old: Sequence[TextTable], new: Sequence[TextTable], spread: float) -> list[str]:
    """A line for each cell whose figures have moved by more than the spread, and for rows that only one side has."""
    if [table.headings for table in old] != [table.headings for table in new]:
        return ["other tables or columns than before: all of it is new"]
    return [line for one, other in zip(old, new, strict=True) for line in _differences(one, other, spread)]


def _differences(old: TextTable, new: TextTable, spread: float) -> list[str]:
    before, after = _by_name(old), _by_name(new)
    found = [f"{key[0]}: no longer there" for key in before if key not in after]
    for key, row in after.items():
        if key not in before:
            found.append(f"{key[0]}: new")
            continue
        for heading, was, now in zip(new.headings[1:], before[key][1:], row[1:], strict=True):
            if not _is_close(figures_of(was), figures_of(now), spread):
                found.append(f"{key[0]}, {heading}: {was or 'nothing'} -> {' '.join(now.split()) or 'nothing'}")
    return found


def _by_name(table: TextTable) -> dict[tuple[str, int], tuple[str, ...]]:
    """Rows by their name, and which of that name they are."""
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    for row in table.rows:
        name = _without_marks(row[0])
        found[name, sum(other == name for other, _ in found)] = row
    return found


def _is_close(was: list[float], now: list[float], spread: float) -> bool:
    if len(was) != len(now):
        return False
    return all(abs(a - b) <= spread * max(abs(a), abs(b)) for a, b in zip(was, now, strict=True))
