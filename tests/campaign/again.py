"""One case again, alone: python -m tests.campaign --case SEED:NAME:NUMBER."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path

from rich.console import Console

from tests.campaign.block import Work, run_block
from tests.campaign.cases import CLASSES, Parser
from tests.campaign.fuzzing import input_at
from tests.campaign.preload import preload


def run_again(case: str, console: Console) -> int:
    """Run a case in this process, so that a debugger can follow; 1 if it fails again."""
    seed, name, number = case.split(":")
    cls = CLASSES[name]
    preload([cls])
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        if isinstance(cls, Parser):
            data = input_at(cls, int(seed), int(number), Path(folder))
            console.print(f"{len(data)} bytes: {data[:2000]!r}", markup=False, highlight=False)
            try:
                console.print("read" if cls.parse(data, Path(folder)) else "refused, as it should be")
                return 0
            except Exception:
                console.print(traceback.format_exc(), markup=False, highlight=False)
                return 1
        work = Work(cls, int(seed), int(number), int(number) + 1)
        findings = [told["finding"] for told in run_block(work, Path(folder)) if "finding" in told]
        for finding in findings:
            console.print(f"{finding['what']}: {finding['why']}", markup=False, highlight=False)
        console.print("as it should be" if not findings else "")
        return 1 if findings else 0
