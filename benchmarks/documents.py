"""Results into documents: each table stands between `<!-- figures: NAME -->` and `<!-- figures: end -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness import Benchmark, Place, Result, columns_of
from ocr.atomic import replacing
from ocr.errors import ConfigError

END = "<!-- figures: end -->"
BEGIN = re.compile(r"^<!-- figures: (?!end )([\w-]+) -->$", flags=re.MULTILINE)
ELSEWHERE = {
    "reliability#campaign": "make campaign",
    "reliability#soak": "make soak",
    "reliability#mutants": "make mutants",
}
"""Tables of commands that take hours and are no benchmarks."""


def begin(name: str) -> str:
    """The line on top of a part."""
    return f"<!-- figures: {name} -->"


def document(root: Path, where: str) -> tuple[Path, str]:
    """The file and the mark of `DOCUMENT#MARK`."""
    stem, _, mark = where.partition("#")
    return (root if stem == "README" else root / "docs") / f"{stem}.md", mark


def marks(root: Path) -> list[str]:
    """All marks of README.md and docs/, as `DOCUMENT#MARK`."""
    files = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [f"{file.stem}#{mark}" for file in files if file.exists() for mark in BEGIN.findall(file.read_text("utf-8"))]


def check_marks(root: Path, benchmarks: Mapping[str, Benchmark]) -> None:
    """Every mark has one benchmark, and every table of a benchmark has its mark."""
    fed = [place.where for one in benchmarks.values() for place in one.places] + [*ELSEWHERE]
    found = marks(root)
    wrong = [f"{mark}: no benchmark fills it" for mark in found if mark not in fed]
    wrong += [f"{where}: the document has no such mark" for where in fed if where not in found]
    wrong += [f"{where}: filled more than once" for where in dict.fromkeys(fed) if fed.count(where) > 1]
    if wrong:
        raise ConfigError("; ".join(wrong), setting="figures", value=wrong, path=root)


def write(root: Path, one: Benchmark, result: Result) -> list[str]:
    """Fill the marks and draw the pictures of this benchmark; returns where."""
    for place in one.places:
        path, mark = document(root, place.where)
        replace_part(path, mark, render(result, place))
    for picture, draw in one.pictures.items():
        draw(result, root / "docs" / picture)
    return [*(place.where for place in one.places), *one.pictures]


def render(result: Result, place: Place) -> list[str]:
    """Where and when it was measured, then the tables, then the notes."""
    cores, memory = result.machine["cores"], result.machine.get("memory_gb")
    machine = f"{cores} CPU cores" + (f", {memory:.0f} GB" if memory else "")
    lines = [f"{result.date}, {machine}: `{result.command}`."]
    tables = place.tables(result.rows)
    if not tables:
        raise ConfigError(f"{place.where}: {result.name} has no such rows", setting="table", value=place.where)
    for caption, rows in tables.items():
        headings = columns_of(rows)
        body = [[row.name, *(row.shown(heading) for heading in headings)] for row in rows]
        lines += ["", *([f"{caption}:", ""] if caption else []), *table_lines(["", *headings], body)]
    if not place.rows and not place.columns and result.notes:
        lines += ["", *result.notes]
    return lines


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
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    before, mark, rest = text.partition(f"{begin(name)}\n")
    part, end, after = rest.partition(END)
    if not mark or not end or BEGIN.search(part) or begin(name) in rest:
        raise ConfigError(f"{path}: the line {begin(name)} must be in it once, followed by a line {END}", path=path)
    return before + mark, part, end + after


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose columns of figures are right-justified; the first column names its row.

    >>> table_lines(["", "ms", "why"], [["maps", "1.9", "one pass"]])
    ['|  | ms | why |', '| --- | ---: | --- |', '| maps | 1.9 | one pass |']
    """
    align = ["---"] + ["---:" if _are_figures([row[at] for row in rows]) else "---" for at in range(1, len(headings))]
    return [table_line(headings), table_line(align), *map(table_line, rows)]


def table_line(cells: Sequence[str]) -> str:
    """A row of a table; a bar in a cell would begin another one."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _are_figures(cells: Sequence[str]) -> bool:
    """Each that is not empty begins with a number, without letters before it."""
    return all(re.match(r"[^A-Za-z\d]*\d", cell) for cell in cells if cell)
