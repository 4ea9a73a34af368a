"""The command: python -m tests.campaign."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before torch is imported: its threads would not survive a fork.

from rich.console import Console

from tests.campaign.again import run_again
from tests.campaign.campaign import Campaign, load_classes, plan, sums
from tests.campaign.cases import CLASSES
from tests.campaign.preload import preload
from tests.campaign.report import result_of, show, write_document, write_result

WIDTH = 180
"""Of the tables where there is no terminal."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of all random choices (default: from the clock)")
    parser.add_argument("--faults", type=int, default=1000, help="faults to inject (default: 1000)")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs to fuzz (default: 1000000)")
    parser.add_argument("--minutes", type=float, help="end after so long, with a part of every class")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this class; may be repeated")
    parser.add_argument("--case", metavar="SEED:NAME:NUMBER", help="one case again, in this process")
    parser.add_argument("--list", action="store_true", help="list the classes")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--docs", type=Path, help="document whose table is replaced: docs/reliability.md")
    return parser.parse_args()


def main() -> int:
    options, console = parse(), Console(width=None if sys.stdout.isatty() else WIDTH)
    load_classes()
    if unknown := [name for name in options.only if name not in CLASSES]:
        console.print(f"--only {unknown[0]}: no such class; --list shows them", highlight=False)
        return 2
    if options.list:
        for cls in CLASSES.values():
            console.print(f"{cls.name:<28} {cls.about}", highlight=False)
        return 0
    if options.case:
        return run_again(options.case, console)
    seed = int(time.time()) % 1_000_000 if options.seed is None else options.seed
    lines = plan(options.faults, options.inputs, options.only)
    preload([line.cls for line in lines if line.wanted])
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        seconds = None if options.minutes is None else 60 * options.minutes
        Campaign(lines, seed, Path(folder), seconds, console).run()
    result = result_of(lines, seed, time.monotonic() - began, options)
    show(result, console)
    if options.json:
        write_result(result, options.json)
    if options.docs:
        write_document(result, options.docs)
    return 1 if sums(lines)["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
