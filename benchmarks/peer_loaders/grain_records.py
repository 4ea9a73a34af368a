"""Grain: letterboxed pages in ArrayRecord, read and finished by its threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from safetensors.numpy import load, save

from benchmarks.peer_loaders.common import (
    Course,
    Item,
    PageWork,
    annotated_pages,
    decode_with_pillow,
    from_record,
    stack,
    to_record,
)


def prepare(course: Course) -> None:
    course.store.mkdir(parents=True, exist_ok=True)
    work = PageWork(course, False)
    # One record per group, so that a page is read alone: their advice for random access.
    writer = ArrayRecordWriter(str(course.store / "pages.array_record"), "group_size:1")
    for page in annotated_pages(course):
        record = to_record(work.fixed(decode_with_pillow(page.path), page))
        record["name"] = np.frombuffer(record["name"].encode(), dtype=np.uint8)
        writer.write(save({name: np.ascontiguousarray(array) for name, array in record.items()}))
    writer.close()


class Work:
    def __init__(self, course: Course, training: bool) -> None:
        self.work = PageWork(course, training)

    def __call__(self, stored: bytes) -> Item:
        record: dict[str, Any] = load(stored)
        return self.work.finish(from_record(record | {"name": record["name"].tobytes().decode()}))


class Epochs:
    """Passes over one endless iterator, so that reading goes on between epochs."""

    def __init__(self, course: Course, training: bool) -> None:
        source = grain.sources.ArrayRecordDataSource(str(course.store / "pages.array_record"))
        pages = grain.MapDataset.source(source)
        if training:
            pages = pages.shuffle(seed=0)
        pages = pages.map(Work(course, training)).batch(course.batch_size, batch_fn=stack)
        self.batches = len(pages)
        options = grain.ReadOptions(num_threads=course.workers, prefetch_buffer_size=2 * course.workers)
        self.iterator = iter(pages.repeat().to_iter_dataset(options))
        self.given = 0

    def __iter__(self) -> Iterator[Item]:
        for batch in islice(self.iterator, self.batches - self.given % self.batches):
            self.given += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {"iterator": self.iterator.get_state(), "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iterator.set_state(state["iterator"])
        self.given = state["given"]


def open_loader(course: Course, training: bool) -> Epochs:
    return Epochs(course, training)
