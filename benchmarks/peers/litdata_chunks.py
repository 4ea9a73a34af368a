"""LitData: letterboxed pages in chunks, written by `optimize`."""

from __future__ import annotations

from functools import partial
from typing import Any

import litdata

from benchmarks.peers.common import (
    Course,
    Item,
    Page,
    PageWork,
    annotated_pages,
    decode_with_pillow,
    from_record,
    to_record,
    torch_loader,
)


def make_record(work: PageWork, page: Page) -> dict[str, Any]:
    return to_record(work.fixed(decode_with_pillow(page.path), page))


def prepare(course: Course) -> None:
    litdata.optimize(
        partial(make_record, PageWork(course, False)),
        annotated_pages(course),
        str(course.store),
        num_workers=course.workers,
        chunk_bytes="64MB",
    )


class StoredPages(litdata.StreamingDataset):  # type: ignore[misc]
    def __init__(self, course: Course, training: bool) -> None:
        super().__init__(str(course.store), shuffle=training)
        self.work = PageWork(course, training)

    def __getitem__(self, index: Any) -> Item:
        return self.work.finish(from_record(super().__getitem__(index)))


def open_loader(course: Course, training: bool) -> Any:
    return torch_loader(StoredPages(course, training), course, litdata.StreamingDataLoader)
