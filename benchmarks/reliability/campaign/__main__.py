"""A randomised campaign: faults injected into the real objects, and damaged inputs given to every parser.

python -m benchmarks.reliability.campaign                              # 1,000 faults and 1,000,000 inputs
python -m benchmarks.reliability.campaign --minutes 5 --seed 1         # a part of every class
python -m benchmarks.reliability.campaign --only cache-flip --faults 50
python -m benchmarks.reliability.campaign --case 1:cache-flip:17       # one case alone, in this process
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before torch is imported: its threads would not survive a fork.

from benchmarks.documents import replace_part, table_lines
from benchmarks.reliability.campaign.cases import CLASSES, COUNTED, KINDS, Fault, Line, Parser, run_apart, run_here
from ocr.system import usable_cores

FAULTS_AT_ONCE, INPUTS_AT_ONCE, MAX_FINDINGS, SHOWN = 100, 5000, 50, 5
"""Cases of a process; findings after which a class is given up, and those of a process that are printed."""
FILES = ("cache_faults", "shard_faults", "model_faults", "parsers")
TITLES = "faults", "samples compared", "orders checked", "processes", "killed", "refused by name", "counted"
TABLES = {
    "fault": ("fault", dict(zip(TITLES, ("cases", *COUNTED), strict=True))),
    "parser": ("parser", {"inputs": "cases", "read": "read"}),
}
"""The first heading, then what is shown under each heading."""


def load_classes() -> None:
    """Import every file of faults and parsers, which register themselves."""
    import cv2
    import torch

    for name in FILES:
        import_module(f"benchmarks.reliability.campaign.{name}")
    cv2.setNumThreads(1)
    torch.set_num_threads(1)


def plan(faults: int, inputs: int, only: Sequence[str]) -> list[Line]:
    """How many cases of every class: its share of all faults, or of all inputs."""
    lines = []
    for kind, total in ((Fault, faults), (Parser, inputs)):
        chosen = [cls for cls in CLASSES.values() if isinstance(cls, kind) and (not only or cls.name in only)]
        missing = {cls.name: next((name for name in cls.needs if find_spec(name) is None), "") for cls in chosen}
        shares = sum(cls.share for cls in chosen if not missing[cls.name])
        for cls in chosen:
            wanted = 0 if missing[cls.name] or not total else max(1, -(-total * cls.share // shares))
            lines.append(Line(cls, wanted, missing[cls.name]))
    return lines


def run(lines: Sequence[Line], seed: int, seconds: float | None = None) -> None:
    """Blocks of the class of which most is left, so that an early end has a part of all."""
    end = float("inf") if seconds is None else time.monotonic() + seconds
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    roots = [Path(tempfile.mkdtemp(prefix="campaign-", dir=place)) for place in (None, memory)]
    gc.collect()
    gc.freeze()  # What is not looked at stays shared with the processes of blocks.
    try:
        while time.monotonic() < end:
            line = max(lines, key=lambda line: 1 - line.cases / line.wanted if line.wanted else 0.0)
            if line.cases >= line.wanted:
                break
            is_parser, first, known = isinstance(line.cls, Parser), line.cases, len(line.findings)
            last = min(line.wanted, first + (INPUTS_AT_ONCE if is_parser else FAULTS_AT_ONCE))
            run_apart(line, seed, last, roots[is_parser] / f"{line.cls.name}-{first}", end)
            print(f"{line.cls.name} {line.cases:,}/{line.wanted:,}, {line.seconds:.1f} s", flush=True)
            for one in line.findings[known : known + SHOWN]:
                print(f"{one['what'].upper()} {one['case']}: {one['why']}", flush=True)
            if len(line.findings) > MAX_FINDINGS:
                line.wanted = line.cases
    finally:
        gc.unfreeze()
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)


def run_again(case: str) -> int:
    """Run a case in this process, so that a debugger can follow; 1 if it fails again."""
    seed, name, number = case.split(":")
    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        told = run_here(CLASSES[name], int(seed), int(number), int(number) + 1, Path(place))
        findings = [one["finding"] for one in told if "finding" in one]
    for one in findings:
        print(f"{one['what']}: {one['why']}", *([bytes.fromhex(one["input"])] if "input" in one else []))
    print(f"{len(findings)} findings")
    return 1 if findings else 0


# -- the result


def result_of(lines: Sequence[Line], command: str, seconds: float) -> dict[str, Any]:
    """Everything that is known about a campaign."""
    classes = {}
    for line in lines:
        kind = "parser" if isinstance(line.cls, Parser) else "fault"
        counts = {name: line.counts[name] for _, columns in TABLES.values() for name in columns.values()}
        found = {name: getattr(line, name) for name in ("cases", "seconds", "findings")}
        classes[line.cls.name] = {"kind": kind, "about": line.cls.about, "missing": line.missing} | counts | found
    return {"date": date.today().isoformat(), "command": command, "seconds": round(seconds, 1), "classes": classes}


def tables(result: dict[str, Any]) -> list[str]:
    """As they stand in the document."""
    classes, minutes = list(result["classes"].values()), result["seconds"] / 60
    counts = Counter(finding["what"] for one in classes for finding in one["findings"])
    faults, inputs = (sum(one["cases"] for one in classes if one["kind"] == kind) for kind in TABLES)
    lines = [
        f"{result['date']}, {usable_cores()} CPU cores, Python {platform.python_version()}, `{result['command']}`:",
        "",
        f"{faults:,} faults and {inputs:,} inputs in {minutes:.0f} minutes. Findings: "
        + ", ".join(f"{kind} {counts[kind]}" for kind in KINDS)
        + ".",
    ]
    for kind, (title, columns) in TABLES.items():
        chosen = [one | {"findings": len(one["findings"])} for one in classes if one["kind"] == kind]
        names = (*columns.values(), "findings")
        rows = [
            [one["about"], *("not run" if one["missing"] else f"{one[name]:,}" for name in names)] for one in chosen
        ]
        rows.append(["all", *(f"{sum(one[name] for one in chosen):,}" for name in names)])
        lines += ["", *table_lines((title, *columns, "findings"), rows)]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="of all random choices (default: from the clock)")
    parser.add_argument("--faults", type=int, default=1000, help="faults to inject (default: 1000)")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs to fuzz (default: 1000000)")
    parser.add_argument("--minutes", type=float, help="end after so long, with a part of every class")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this class; may be repeated")
    parser.add_argument("--case", metavar="SEED:NAME:NUMBER", help="one case again, in this process")
    parser.add_argument("--list", action="store_true", help="list the classes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the tables into docs/reliability.md")
    options = parser.parse_args(arguments)
    load_classes()
    if unknown := [name for name in options.only if name not in CLASSES]:
        sys.exit(f"--only {unknown[0]}: no such class. --list shows them")
    if options.list:
        for cls in CLASSES.values():
            print(f"{cls.name:<28} {cls.about}")
        return 0
    if options.case:
        return run_again(options.case)
    seed = int(time.time()) % 1_000_000 if options.seed is None else options.seed
    words = [f"--faults {options.faults}", f"--inputs {options.inputs}", f"--seed {seed}"]
    words += [f"--minutes {options.minutes:g}"] if options.minutes else []
    words += [f"--only {name}" for name in options.only]
    lines, began = plan(options.faults, options.inputs, options.only), time.monotonic()
    run(lines, seed, None if options.minutes is None else 60 * options.minutes)
    command = f"python -m benchmarks.reliability.campaign {' '.join(words)}"
    result = result_of(lines, command, time.monotonic() - began)
    print("\n".join(["", *tables(result)]))
    findings = [finding for one in result["classes"].values() for finding in one["findings"]]
    for finding in findings[:20]:
        print(f"again: python -m benchmarks.reliability.campaign --case {finding['case']}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.docs:
        replace_part(options.docs, "campaign", tables(result))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
