"""One loader in a process of its own, for benchmarks/peers/table.py: reads a task as JSON, tells what it measured.

echo '{"peer": "raw", "task": "first_run", "course": {"data": "DIR", "folder": "OUT"}}' |
    python -m benchmarks.peers.worker

What it tells are lines that begin with a mark, since libraries print too; the last one is the result.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.loaders import Transfer
from benchmarks.peers import PEERS
from benchmarks.peers.common import Course
from ocr.system import memory_bytes, process_tree

MARK = "\x1e"
LATER_EPOCHS = 3
TRAINING_EPOCHS = 2
"""Behind one that is not measured, which fills the cache for training."""
Told = dict[str, Any]


def tell(**what: Any) -> None:
    """A line for the process that started this one."""
    print(f"\n{MARK}{json.dumps(what)}", flush=True)


class Subject:
    """The loader of the task."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.peer = PEERS[task["peer"]]
        self.course = Course(**task["course"])
        self.settings = self.peer.settings | task.get("settings", {})
        self.module = importlib.import_module(f"benchmarks.peers.{self.peer.module}")

    def open(self, training: bool) -> Any:
        """Its batches."""
        return self.module.open_loader(self.course, training, **self.settings)


def cpu_seconds() -> float:
    """Of this process, its workers, and those of them that have ended."""
    ticks = 0
    for process in process_tree(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            continue  # Ended since.
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def timed_epoch(batches: Iterable[Any], copy: Transfer) -> Told:
    """One pass with every tensor copied, as to a device."""
    cpu, start, pages, first = cpu_seconds(), time.monotonic(), 0, 0.0
    for batch in batches:
        first = first or time.monotonic()
        copy(batch)
        pages += len(batch["images"])
    return {"seconds": time.monotonic() - start, "cpu": cpu_seconds() - cpu, "pages": pages, "first_batch": first}


def prepare(subject: Subject, task: dict[str, Any]) -> Told:
    """What is done once before the first epoch."""
    start = time.monotonic()
    subject.module.prepare(subject.course)
    return {"seconds": time.monotonic() - start}


def first_run(subject: Subject, task: dict[str, Any]) -> Told:
    """The first epoch ever, including opening, and later ones of the same process."""
    start, copy = time.monotonic(), Transfer()
    loader = subject.open(training=False)
    first = timed_epoch(loader, copy)
    first["seconds"] = time.monotonic() - start
    return {"first": first, "later": [timed_epoch(loader, copy) for _ in range(LATER_EPOCHS)]}


def second_run(subject: Subject, task: dict[str, Any]) -> Told:
    """The first epoch of another process, then training with the memory that it takes."""
    start, copy = time.monotonic(), Transfer()
    loader = subject.open(training=False)
    first = timed_epoch(loader, copy)
    first["seconds"] = time.monotonic() - start
    start_seconds = first["first_batch"] - task["started"]
    del loader
    gc.collect()
    loader = subject.open(training=True)
    timed_epoch(loader, copy)
    training = [timed_epoch(loader, copy) for _ in range(TRAINING_EPOCHS)]
    memory = max(memory_bytes() for batch in loader if copy(batch))
    return {"first": first, "start_seconds": start_seconds, "training": training, "memory_bytes": memory}


def one_epoch(subject: Subject, task: dict[str, Any]) -> Told:
    """An epoch that tells of its second batch, for a process that is to be killed."""
    for number, _ in enumerate(subject.open(training=False)):
        if number == 1:
            tell(reading=True)
    return {}


def write_pages(subject: Subject, task: dict[str, Any]) -> Told:
    """All arrays of an epoch in a file."""
    arrays = {}
    for batch in subject.open(training=False):
        arrays |= arrays_of(batch)
    np.savez(task["file"], **arrays)
    return {}


def write_order(subject: Subject, task: dict[str, Any]) -> Told:
    """Names of the pages of shuffled batches; a state is saved after some batches, or resumed from."""
    loader, batches = subject.open(training=True), []
    if not hasattr(loader, "state_dict"):
        return {"state": False, "batches": []}
    if task["resume"]:
        loader.load_state_dict(torch.load(task["file"], weights_only=True))
    for batch in loader:
        batches.append(names_of(batch))
        if not task["resume"] and len(batches) == task["after"]:
            torch.save(loader.state_dict(), task["file"])
    return {"state": True, "batches": batches}


def arrays_of(batch: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Page and maps of each sample, as `name/key`; pages are (H, W, 3)."""
    arrays = {}
    for position, name in enumerate(names_of(batch)):
        for key, tensor in batch.items():
            if isinstance(tensor, torch.Tensor):
                array = tensor[position].numpy()
                # A copy: the memory of a batch may be used for the next one.
                arrays[f"{name}/{key}"] = (array.transpose(1, 2, 0) if len(array) == 3 else array).copy()
    return arrays


def names_of(batch: dict[str, Any]) -> list[str]:
    """The pages of a batch."""
    return list(batch["names"] if "names" in batch else batch["image_filename"])


TASKS = {task.__name__: task for task in (prepare, first_run, second_run, one_epoch, write_pages, write_order)}


def main() -> None:
    task = json.load(sys.stdin)
    subject = Subject(task)
    tell(begun=True)
    tell(result=TASKS[task["task"]](subject, task))
    # Some loaders hold on to threads and processes; nothing is left to do.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
