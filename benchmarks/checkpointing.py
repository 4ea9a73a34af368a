"""Memory and time of a training step, with `model.checkpoint_gradients` and without; each step in its own process.

python benchmarks/checkpointing.py --models base resnet50
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.deploy_worker import peak_bytes
from benchmarks.measure import console
from ocr.datasets.build import make
from ocr.jobs.compose import compose_training
from ocr.models.loss import MAPS

KEPT = {"all": "model.checkpoint_gradients=false", "checkpoints": "model.checkpoint_gradients=true"}


def main() -> None:
    """Show one row per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["lite", "base"], help="presets of configs/model/")
    parser.add_argument("--pages", type=int, default=4, help="pages per step (default: 4)")
    parser.add_argument("--size", type=int, default=640, help="side of a page (default: 640)")
    parser.add_argument("--rounds", type=int, default=2, help="processes per setting, in turns (default: 2)")
    parser.add_argument("--steps", type=int, default=2, help="steps per process (default: 2)")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measure(*options.step, options.pages, options.size, options.steps)))
        return
    title = f"Gradient checkpoints, {options.pages} pages of {options.size}, memory and CPU time of a step"
    table = Table("", "memory", "with checkpoints", "CPU time", "with checkpoints", title=title, title_justify="left")
    for model in options.models:
        best: dict[str, dict[str, float]] = {}
        for _ in range(options.rounds):
            for name, override in KEPT.items():
                found = in_own_process(model, override, options)
                best[name] = {key: min(value, best.get(name, found)[key]) for key, value in found.items()}
        kept, again = best["all"], best["checkpoints"]
        memory, seconds = (again[key] / kept[key] for key in ("megabytes", "seconds"))
        table.add_row(
            f"model={model}",
            f"{kept['megabytes']:.0f} MB",
            f"{again['megabytes']:.0f} MB, {memory:.2f} x",
            f"{kept['seconds']:.2f} s",
            f"{again['seconds']:.2f} s, {seconds:.2f} x",
        )
    console.print(table)


def in_own_process(model: str, override: str, options: argparse.Namespace) -> dict[str, float]:
    """The figures of one setting; the peak of memory belongs to a process."""
    command = [sys.executable, __file__, "--step", model, override]
    command += [f"--{name}={getattr(options, name)}" for name in ("pages", "size", "steps")]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def measure(model: str, override: str, pages: int, size: int, steps: int) -> dict[str, float]:
    """Megabytes that training steps add to the process, and the CPU seconds of the fastest one."""
    config = compose_training([f"model={model}", override])
    detector, loss = make(config.model, "model"), make(config.loss, "loss")
    batch: dict[str, Any] = {name: (torch.rand(pages, 1, size, size) > 0.9).float() for name in MAPS}
    images, seconds = torch.randn(pages, 3, size, size), []
    before = peak_bytes()
    for _ in range(steps):
        begin = time.process_time()
        loss(detector(images), batch)[0].backward()
        detector.zero_grad()
        seconds.append(time.process_time() - begin)
    return {"megabytes": (peak_bytes() - before) / 1e6, "seconds": min(seconds)}


if __name__ == "__main__":
    main()
