"""Grain: letterboxed pages in ArrayRecord, read and finished by its threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from safetensors.numpy import load, save

from benchmarks.peers import common


def prepare(course: common.Course) -> None:
    course.store.mkdir(parents=True, exist_ok=True)
    work = common.PageWork(course, False)
    # One record per group, so that a page is read alone: their advice for random access.
    writer = ArrayRecordWriter(str(course.store / "pages.array_record"), "group_size:1")
    for page in common.annotated_pages(course):
        record = common.to_record(work.fixed(common.decode_with_pillow(page.path), page))
        record["name"] = np.frombuffer(record["name"].encode(), dtype=np.uint8)
        writer.write(save({name: np.ascontiguousarray(array) for name, array in record.items()}))
    writer.close()


class Epochs:
    """Passes over one endless iterator, so that reading goes on between epochs."""

    def __init__(self, course: common.Course, training: bool) -> None:
        self.work, self.given = common.PageWork(course, training), 0
        source = grain.sources.ArrayRecordDataSource(str(course.store / "pages.array_record"))
        pages = grain.MapDataset.source(source)
        pages = pages.shuffle(seed=0) if training else pages
        pages = pages.map(self._finish).batch(course.batch_size, batch_fn=common.stack)
        self.batches = len(pages)
        options = grain.ReadOptions(num_threads=course.workers, prefetch_buffer_size=2 * course.workers)
        self.iterator = iter(pages.repeat().to_iter_dataset(options))

    def _finish(self, stored: bytes) -> common.Item:
        record: dict[str, Any] = load(stored)
        return self.work.finish(common.from_record(record | {"name": record["name"].tobytes().decode()}))

    def __iter__(self) -> Iterator[common.Item]:
        for batch in islice(self.iterator, self.batches - self.given % self.batches):
            self.given += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {"iterator": self.iterator.get_state(), "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iterator.set_state(state["iterator"])
        self.given = state["given"]


open_loader = Epochs
