"""Grain (https://google-grain.readthedocs.io): letterboxed pages in ArrayRecord, finished by its threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from safetensors.numpy import load, save

from benchmarks.peers.common import Course, Item, PageWork, annotated_pages, stack

ABOUT = {
    "grain": {"title": "Grain", "reads": "letterboxed pages in ArrayRecord", "packages": ("grain", "array-record")},
}
FILE = "pages.array_record"


def prepare(course: Course) -> None:
    work = PageWork(course, False)
    # One record per group, so that a page is read alone: their advice for random access.
    writer = ArrayRecordWriter(str(course.store / FILE), "group_size:1")
    for page in annotated_pages(course):
        record = work.record(page) | {"name": np.frombuffer(page.name.encode(), dtype=np.uint8)}
        writer.write(save({name: np.ascontiguousarray(array) for name, array in record.items()}))
    writer.close()


class Epochs:
    """Passes over one endless iterator, so that reading goes on between epochs."""

    def __init__(self, course: Course, training: bool) -> None:
        self.work, self.given = PageWork(course, training), 0
        pages = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(course.store / FILE)))
        pages = (
            (pages.shuffle(seed=0) if training else pages).map(self._finish).batch(course.batch_size, batch_fn=stack)
        )
        self.batches = len(pages)
        options = grain.ReadOptions(num_threads=course.workers, prefetch_buffer_size=2 * course.workers)
        self.iterator = iter(pages.repeat().to_iter_dataset(options))

    def _finish(self, stored: bytes) -> Item:
        record = load(stored)
        return self.work.finish_record(record | {"name": record["name"].tobytes().decode()})

    def __iter__(self) -> Iterator[Item]:
        for batch in islice(self.iterator, self.batches - self.given % self.batches):
            self.given += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {"iterator": self.iterator.get_state(), "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iterator.set_state(state["iterator"])
        self.given = state["given"]


open_loader = Epochs
