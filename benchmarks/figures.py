"""Every measured table of README.md and docs/, from the benchmarks themselves: no figure is typed by hand.

python benchmarks/figures.py --data DIR                # all of them: hours, on a quiet machine
python benchmarks/figures.py --only maps --only boxes  # the tables of two benchmarks
python benchmarks/figures.py --data DIR --missing      # those that are not in data/figures yet: goes on after Ctrl-C
python benchmarks/figures.py --list                    # which table comes from which command

Each table stands between two marks in its document, and is replaced there. What differs from the figures before by
more than the spread of the benchmark is listed at the end. What trains for an hour, needs a model or other
environments writes its tables itself, with --docs: trained.py, ablation.py, distil.py, deploy.py, peers.py,
any_loader.py, mutants.py, soak.py and tests.campaign.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.compare_tables import TextTable, differences, parse_tables
from benchmarks.document_parts import read_part, replace_part
from benchmarks.figure_parts import BENCHMARKS, PARTS, DocumentPart
from benchmarks.measure import TABLES_FILE, console, exit_with
from ocr.errors import ConfigError
from ocr.system import usable_cores


class Figures:
    """The tables that benchmarks have shown, kept in a folder."""

    def __init__(self, folder: Path, pages: dict[str, Path | None], more: list[str]) -> None:
        self.folder, self.pages, self.more = folder, pages, more
        folder.mkdir(parents=True, exist_ok=True)

    def command(self, name: str) -> list[str]:
        """With the pages that are given, and more options at its end."""
        text = BENCHMARKS[name].command
        for word, folder in self.pages.items():
            given = "" if folder is None else f"--data {shlex.quote(str(folder.resolve()))}"
            text = text.replace(f"--data {word}", given)
        return [*shlex.split(text), *self.more]

    def run(self, name: str) -> None:
        """Keep what the benchmark shows. It may say by its status that a target is missed."""
        file = self._file(name)
        unfinished = file.with_suffix(".unfinished")
        for old in (file, unfinished):
            old.unlink(missing_ok=True)
        command = self.command(name)
        console.rule(" ".join(command))
        environment = os.environ | {TABLES_FILE: str(unfinished)}
        status = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment).returncode
        if not unfinished.exists():
            raise ConfigError(f"{' '.join(command)} has shown no table, and ended with status {status}")
        unfinished.rename(file)

    def run_all(self, names: list[str]) -> list[str]:
        """What failed: the others are not lost by it."""
        failed = []
        for name in names:
            try:
                self.run(name)
            except ConfigError as error:
                failed.append(str(error))
        return failed

    def known(self) -> dict[str, list[TextTable]]:
        """The tables of each benchmark that was ever run."""
        return {name: self._read(self._file(name)) for name in BENCHMARKS if self._file(name).exists()}

    def _read(self, file: Path) -> list[TextTable]:
        try:
            told = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            return [TextTable(one["title"], tuple(one["headings"]), tuple(map(tuple, one["rows"]))) for one in told]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file} is damaged ({error}). Remove it, and run its benchmark again") from error

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"


def update(part: DocumentPart, found: dict[str, list[TextTable]], root: Path) -> list[str]:
    """Write the tables of a part into its document; what differs from those before."""
    tables, path = part.tables(found), root / part.document
    spread = max(BENCHMARKS[name].spread for name in part.benchmarks)
    changed = differences(parse_tables(read_part(path, part.name)), tables, spread)
    lines = [f"{date.today().isoformat()}, {usable_cores()} CPU cores; other runs may differ by {spread:.1%}."]
    for table in tables:
        lines += ["", *([f"{table.title}:", ""] if table.title else []), *table.markdown()]
    replace_part(path, part.name, lines)
    return [f"{part.document}, {part.name}: {line}" for line in changed]


def show_list() -> None:
    """Which table comes from which command."""
    table = Table("document", "part", "command", "spread")
    for part in PARTS:
        for name in part.benchmarks:
            known = BENCHMARKS[name]
            table.add_row(part.document, part.name, f"python {known.command}", f"{known.spread:.1%}")
    console.print(table)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--forms", type=Path, help="dataset folder of pages whose unit is the word (default: left out)")
    parser.add_argument("--only", action="append", choices=[*BENCHMARKS], help="this benchmark; may be repeated")
    parser.add_argument("--folder", type=Path, default=ROOT / "data" / "figures", help="tables (default: data/figures)")
    parser.add_argument("--documents", type=Path, default=ROOT, help="folder with README.md and docs/ (default: here)")
    parser.add_argument("--list", action="store_true", help="show which table comes from which command; run nothing")
    parser.add_argument("--kept", action="store_true", help="run nothing: write what an earlier run has kept")
    parser.add_argument("--missing", action="store_true", help="run only what no earlier run has kept")
    parser.add_argument("more", nargs="*", help="options for each benchmark, after --, e.g. -- --rounds 1")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.list:
        show_list()
        return 0
    names = options.only or [*BENCHMARKS]
    if options.data is not None and options.forms is None:
        names = [name for name in names if "FORMS" not in BENCHMARKS[name].command]
    figures = Figures(options.folder.resolve(), {"DIR": options.data, "FORMS": options.forms}, options.more)
    kept = figures.known() if options.missing else {}
    failed = figures.run_all([name for name in names if name not in kept and not options.kept])
    changed = []
    found = figures.known()
    for part in PARTS:
        missing = [name for name in part.benchmarks if name not in found]
        if not set(part.benchmarks) & set(names):
            continue
        if missing:
            console.print(f"{part.document}, {part.name}: left as it is, not measured yet: {', '.join(missing)}")
            continue
        try:
            changed += update(part, found, options.documents)
        except LookupError as error:
            failed.append(f"{part.document}, {part.name}: left as it is: {error}")
    console.rule("differs by more than its spread" if changed else "nothing differs by more than its spread")
    for line in [*changed, *failed]:
        console.print(line, markup=False, soft_wrap=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        exit_with(main)
    except KeyboardInterrupt:
        console.print("interrupted: the same command with --missing goes on")
        sys.exit(130)
