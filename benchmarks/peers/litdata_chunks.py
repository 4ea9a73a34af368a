"""LitData (https://github.com/Lightning-AI/litdata): letterboxed pages in chunks, written by `optimize`."""

from __future__ import annotations

from functools import partial
from typing import Any

import litdata

from benchmarks.peers.common import Course, Item, PageWork, annotated_pages, torch_loader

ABOUT = {"litdata": {"title": "LitData", "reads": "letterboxed pages in chunks", "packages": ("litdata",)}}


def prepare(course: Course) -> None:
    make_record = partial(PageWork.record, PageWork(course, False))
    folder = str(course.store)
    litdata.optimize(make_record, annotated_pages(course), folder, num_workers=course.workers, chunk_bytes="64MB")


class StoredPages(litdata.StreamingDataset):  # type: ignore[misc]
    def __init__(self, course: Course, training: bool) -> None:
        super().__init__(str(course.store), shuffle=training)
        self.work = PageWork(course, training)

    def __getitem__(self, index: Any) -> Item:
        return self.work.finish_record(super().__getitem__(index))


def open_loader(course: Course, training: bool) -> Any:
    return torch_loader(StoredPages(course, training), course, litdata.StreamingDataLoader)
