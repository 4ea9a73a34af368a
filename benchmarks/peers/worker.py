"""One loader in a process of its own, for benchmarks/peers/table.py: reads a task as JSON, tells what it measured.

echo '{"peer": "cached", "task": "first_run", "course": {"data": "DIR", "folder": "OUT"}}' |
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
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.loaders import Transfer
from benchmarks.peers import MARK, PEERS, Course
from ocr.system import memory_bytes, process_tree

LATER_EPOCHS = 3
TRAINING_EPOCHS = 2
"""Behind one that is not measured, which fills the cache for training."""
EXACT = {"cache": "off", "image_loading_config": {"annotation_frame": "upright", "scaled": "off"}}
"""Our loader with Pillow's pixels."""
Told = dict[str, Any]


def tell(**what: Any) -> None:
    """A line for the process that started this one."""
    print(f"\n{MARK}{json.dumps(what)}", flush=True)


class Subject:
    """The loader of a task; the other methods are the tasks."""

    def __init__(self, task: Told) -> None:
        self.task, self.copy = task, Transfer()
        self.course = Course(**task["course"])
        self.course.store.mkdir(parents=True, exist_ok=True)
        self.peer = PEERS[task["peer"]]
        self.module = importlib.import_module(f"benchmarks.peers.{self.peer.module}")

    def open(self, training: bool) -> Any:
        """Its batches."""
        return self.module.open_loader(self.course, training, **self.peer.settings)

    def timed_epoch(self, batches: Iterable[Any]) -> Told:
        """One pass with every tensor copied, as to a device."""
        cpu, start, pages, first = cpu_seconds(), time.monotonic(), 0, 0.0
        for batch in batches:
            first = first or time.monotonic()
            self.copy(batch)
            pages += len(batch["images"])
        return {"seconds": time.monotonic() - start, "cpu": cpu_seconds() - cpu, "pages": pages, "first_batch": first}

    def first_epoch(self) -> tuple[Any, Told]:
        """The loader, and its first epoch with the time to open it."""
        start = time.monotonic()
        loader = self.open(training=False)
        first = self.timed_epoch(loader)
        return loader, first | {"seconds": time.monotonic() - start}

    def prepare(self) -> Told:
        """What is done once before the first epoch."""
        start = time.monotonic()
        self.module.prepare(self.course)
        return {"seconds": time.monotonic() - start}

    def first_run(self) -> Told:
        """The first epoch ever, and later ones of the same process."""
        loader, first = self.first_epoch()
        return {"first": first, "later": [self.timed_epoch(loader) for _ in range(LATER_EPOCHS)]}

    def second_run(self) -> Told:
        """The first epoch of another process, then training with the memory that it takes."""
        loader, first = self.first_epoch()
        start_seconds = first["first_batch"] - self.task["started"]
        del loader
        gc.collect()
        loader = self.open(training=True)
        self.timed_epoch(loader)
        training = [self.timed_epoch(loader) for _ in range(TRAINING_EPOCHS)]
        memory = max(memory_bytes() for batch in loader if self.copy(batch))
        return {"first": first, "start_seconds": start_seconds, "training": training, "memory_bytes": memory}

    def one_epoch(self) -> Told:
        """An epoch that tells of its second batch, for a process that is to be killed."""
        for number, _ in enumerate(self.open(training=False)):
            if number == 1:
                tell(reading=True)
        return {}

    def compare(self) -> Told:
        """By how many levels the pixels of each page differ from Pillow's, and which other arrays differ at all."""
        from benchmarks.peers.glyphfeed import open_loader

        arrays = arrays_of(self.open(training=False))
        gaps, different = {}, []
        with TemporaryDirectory() as folder:
            # Without workers: this process has threads of the peer, and is not forked any more.
            exact = arrays_of(open_loader(replace(self.course, folder=folder, workers=0), False, **EXACT))
        for (name, key), wanted in exact.items():
            found = arrays.get((name, key))
            if key == "images" and found is not None:
                gaps[name] = float(np.abs(wanted.astype(np.int16) - found).mean())
            elif found is None or not np.array_equal(wanted, found):
                different.append(f"{name}/{key}")
        return {"gaps": gaps, "different": sorted(different)}

    def write_order(self) -> Told:
        """Names of the pages of shuffled batches; a state is saved after some batches, or resumed from."""
        loader, batches = self.open(training=True), []
        if not hasattr(loader, "state_dict"):
            return {"state": False, "batches": []}
        if self.task["resume"]:
            loader.load_state_dict(torch.load(self.task["file"], weights_only=True))
        for batch in loader:
            batches.append(names_of(batch))
            if not self.task["resume"] and len(batches) == self.task["after"]:
                torch.save(loader.state_dict(), self.task["file"])
        return {"state": True, "batches": batches}


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


def arrays_of(batches: Iterable[dict[str, Any]]) -> dict[tuple[str, str], NDArray[Any]]:
    """Page and maps of each sample, by its name and their key; pages are (H, W, 3)."""
    arrays = {}
    for batch in batches:
        for position, name in enumerate(names_of(batch)):
            for key, tensor in batch.items():
                if isinstance(tensor, torch.Tensor):
                    array = tensor[position].numpy()
                    # A copy: the memory of a batch may be used for the next one.
                    arrays[name, key] = (array.transpose(1, 2, 0) if len(array) == 3 else array).copy()
    return arrays


def names_of(batch: dict[str, Any]) -> list[str]:
    """The pages of a batch."""
    return list(batch["names"] if "names" in batch else batch["image_filename"])


def main() -> None:
    task = json.load(sys.stdin)
    subject = Subject(task)
    tell(begun=True)
    tell(result=getattr(subject, task["task"])())
    # Some loaders hold on to threads and processes; nothing is left to do.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
