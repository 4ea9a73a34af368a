"""Run benchmarks, keep their results as JSON, and write their tables into README.md and docs/.

python benchmarks/run.py --data DIR --forms DIR      # all: hours, on a quiet machine
python benchmarks/run.py epochs grid --data DIR      # two of them
python benchmarks/run.py path --pages 8 --rounds 1   # a trial on synthetic pages; no document is changed
python benchmarks/run.py --data DIR --missing        # what data/figures does not have yet: resumes after Ctrl-C
python benchmarks/run.py --kept                      # run nothing: write the kept results into the documents
python benchmarks/run.py --list                      # names, tables, and what each measures
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import documents, harness
from benchmarks.harness import BENCHMARKS, KEPT, ROOT, Benchmark, Data, Result, Row, console, load_benchmarks
from ocr.errors import ConfigError, GlyphFeedError

FOLDERS = {"receipts": "--data", "forms": "--forms"}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of receipts (default: synthetic pages)")
    parser.add_argument("--forms", type=Path, metavar="DIR", help="folder of forms (default: synthetic pages)")
    parser.add_argument("--pages", type=int, default=24, help="synthetic pages per split (default: 24)")
    parser.add_argument("--rounds", type=int, help="rounds of each contender (default: as each benchmark says)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of a benchmark")
    parser.add_argument("--list", action="store_true", help="show the benchmarks; run nothing")
    parser.add_argument("--kept", action="store_true", help="run nothing: write the kept results into the documents")
    parser.add_argument("--show", action="store_true", help="only show the tables; write no document")
    parser.add_argument("--missing", action="store_true", help="only those without a kept result")
    parser.add_argument("--folder", type=Path, default=KEPT, help="results (default: data/figures)")
    return parser.parse_args(arguments)


def command_of(one: Benchmark, options: argparse.Namespace) -> str:
    """As a document shows it: DIR and FORMS are the folders."""
    words = ["python benchmarks/run.py", one.name]
    words += [f"{FOLDERS[name]} {'DIR' if name == 'receipts' else 'FORMS'}" for name in one.pages]
    words += [f"--rounds {options.rounds}"] * (options.rounds not in (None, one.rounds))
    return " ".join([*words, *(f"--set {setting}" for setting in options.set)])


def run_apart(one: Benchmark, options: argparse.Namespace, folders: dict[str, Path]) -> int:
    """The exit status of a process that runs this benchmark and keeps its result."""
    kept = options.folder.resolve()
    # Without real pages, fewer rounds and other settings are a trial, whose figures belong in no document.
    is_trial = any(getattr(options, FOLDERS[name][2:]) is None for name in one.pages)
    is_trial |= not one.pages and (options.rounds is not None or bool(options.set))
    is_trial |= any(Result.read(kept / f"{name}.json").synthetic for name in one.uses)
    with tempfile.TemporaryDirectory(prefix=f"glyphfeed-{one.name}-") as work:
        task = {
            "module": one.run.__module__,
            "name": one.name,
            "result": str(kept / f"{one.name}.json"),
            "command": command_of(one, options),
            "synthetic": is_trial,
            "data": {**{name: str(path.resolve()) for name, path in folders.items()}, "work_folder": work},
            "rounds": one.rounds if options.rounds is None else options.rounds,
            "settings": options.set,
        }
        console.rule(f"{one.name}: {task['command']}")
        command = [sys.executable, "-m", "benchmarks.run", "--one", json.dumps(task)]
        return subprocess.run(command, cwd=ROOT, env=os.environ | harness.thread_variables(one.threads)).returncode


def run_one(module: str, name: str, result: str, data: dict[str, str], settings: list[str], **about: object) -> None:
    """In the process of a benchmark."""
    importlib.import_module(module)
    one, path, start = BENCHMARKS[name], Path(result), time.perf_counter()
    harness.pin_threads(one.threads)
    folders = {name: Path(folder) for name, folder in data.items()}
    runs = folders["work_folder"] / "runs" if about["synthetic"] else path.parent / "runs"
    rounds = int(str(about["rounds"]))
    lines = list(one.run(Data(**folders, rounds=rounds, kept=path.parent, runs=runs, settings=tuple(settings))))
    rows = [line for line in lines if isinstance(line, Row)]
    if not rows:
        raise ConfigError(f"{one.name} has measured nothing", setting="benchmark", value=one.name)
    notes, seconds = [line for line in lines if isinstance(line, str)], round(time.perf_counter() - start, 1)
    found = Result(name, rows, notes, str(about["command"]), bool(about["synthetic"]), rounds, seconds=seconds)
    found.write(path)
    harness.show(found)


def pages_of(options: argparse.Namespace, needed: set[str], work: Path) -> dict[str, Path]:
    """The given folders, and synthetic pages for those that are not given."""
    folders = {"receipts": options.data, "forms": options.forms}
    for name, folder in folders.items():
        if folder is not None and not (folder / "images").is_dir():
            raise ConfigError(f"{FOLDERS[name]} {folder} has no folder images", setting=FOLDERS[name], path=folder)
        if folder is None:
            folders[name] = work / name
            if name in needed:
                from ocr.tools.synth import synthesize

                console.print(f"no {FOLDERS[name]}: making 2 x {options.pages} synthetic {name}")
                kind, units = ("receipt", "lines") if name == "receipts" else ("form", "words")
                size = (0.5, 4.0) if options.pages >= 16 else (0.3, 1.0)
                many = {"train": options.pages, "val": options.pages}
                synthesize(folders[name], **many, seed=0, megapixels=size, kind=kind, units=units, show_progress=False)
    return folders


def run_all(options: argparse.Namespace, chosen: list[Benchmark]) -> list[str]:
    """Run them one after the other; returns those that failed."""
    failed, given = [], {name for name in FOLDERS if getattr(options, FOLDERS[name][2:]) is not None}
    if given and not options.names:
        chosen = [one for one in chosen if set(one.pages) <= given]
    with tempfile.TemporaryDirectory(prefix="glyphfeed-pages-") as work:
        folders = pages_of(options, {name for one in chosen for name in one.pages}, Path(work))
        for one in chosen:
            if missing := [name for name in one.uses if not (options.folder / f"{name}.json").exists()]:
                console.print(f"{one.name}: left out, it is computed from {', '.join(missing)}, not measured yet")
            elif status := run_apart(one, options, folders):
                failed.append(f"{one.name}: ended with status {status}")
    return failed


def choose(options: argparse.Namespace, known: dict[str, Benchmark]) -> list[Benchmark]:
    """The named benchmarks and the tables that are computed from them, or all."""
    if unknown := [name for name in options.names if name not in known]:
        raise ConfigError(f"no benchmark is named {unknown[0]!r}. Choose from {', '.join(known)}", value=unknown[0])
    names = {*options.names} or {*known}
    chosen = [one for one in known.values() if one.name in names or names & {*one.uses}]
    return [
        one for one in chosen if one.uses or not options.missing or not (options.folder / f"{one.name}.json").exists()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    known = load_benchmarks()
    if options.list:
        table = Table("name", "tables", "measures")
        for one in known.values():
            table.add_row(one.name, "\n".join(place.where for place in one.places), one.about)
        console.print(table)
        return 0
    chosen = choose(options, known)
    if not options.names and not options.show:
        documents.check_marks(ROOT, known)
    failed = [] if options.kept else run_all(options, chosen)
    for one in chosen:
        if not (file := options.folder / f"{one.name}.json").exists():
            continue
        result = Result.read(file)
        for line in result.missed():
            console.print(f"missed target: {one.name}: {line}", markup=False, soft_wrap=True)
        if not (options.show or result.synthetic or any(line.startswith(f"{one.name}:") for line in failed)):
            try:
                for where in documents.write(ROOT, one, result):
                    console.print(f"written: {where}", markup=False)
            except GlyphFeedError as error:
                failed.append(f"{one.name}: not written: {error}")
    for line in failed:
        console.print(f"failed: {line}", markup=False, soft_wrap=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--one"]:
            run_one(**json.loads(sys.argv[2]))
            sys.exit(0)
        sys.exit(main())
    except GlyphFeedError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command with --missing resumes" if sys.argv[1:2] != ["--one"] else 130)
