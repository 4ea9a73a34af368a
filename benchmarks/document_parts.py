"""Parts of a document that a command writes: between `<!-- figures: NAME -->` and `<!-- figures: end -->`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ocr.atomic import replacing
from ocr.errors import ConfigError

END = "<!-- figures: end -->"
BEGIN = re.compile(r"^<!-- figures: (?!end )([\w-]+) -->$", flags=re.MULTILINE)


def begin(name: str) -> str:
    """The line on top of a part."""
    return f"<!-- figures: {name} -->"


def names_of_parts(text: str) -> list[str]:
    """The parts of a document, in their order."""
    return BEGIN.findall(text)


def read_part(path: Path, name: str) -> str:
    """What stands between the marks now."""
    return _split(path, name)[1].strip("\n")


def replace_part(path: Path, name: str, lines: Sequence[str]) -> None:
    """Write these lines between the marks, with an empty line above and below; the rest stays as it is."""
    before, _, after = _split(path, name)
    text = "\n".join(lines).strip("\n")
    with replacing(path) as stream:
        stream.write(f"{before}\n{text}\n\n{after}".encode())


def _split(path: Path, name: str) -> tuple[str, str, str]:
    """The text up to and with the first mark, the part, and the rest from the second mark on."""
    text = path.read_text(encoding="utf-8")
    before, mark, rest = text.partition(f"{begin(name)}\n")
    part, end, after = rest.partition(END)
    if not mark or not end or BEGIN.search(part) or begin(name) in rest:
        raise ConfigError(f"{path}: the line {begin(name)} must be in it once, followed by a line {END}")
    return before + mark, part, end + after


def table_line(cells: Sequence[str]) -> str:
    """A row of a table; a bar in a cell would begin another one."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose columns of figures are right-justified; the first column names its row.

    >>> table_lines(["", "ms", "why"], [["maps", "1.9", "one pass"]])
    ['|  | ms | why |', '| --- | ---: | --- |', '| maps | 1.9 | one pass |']
    """
    marks = ["---"] + ["---:" if _are_figures([row[at] for row in rows]) else "---" for at in range(1, len(headings))]
    return [table_line(headings), table_line(marks), *map(table_line, rows)]


def _are_figures(cells: Sequence[str]) -> bool:
    """Each that is not empty begins with a number, without letters before it."""
    return all(re.match(r"[^A-Za-z\d]*\d", cell) for cell in cells if cell)
