"""Mosaic Streaming (https://docs.mosaicml.com/projects/streaming): letterboxed pages in MDS shards on this disk."""

from __future__ import annotations

from typing import Any

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from benchmarks.peers.common import Course, Item, PageWork, annotated_pages, torch_loader

ABOUT = {
    "mosaic": {
        "title": "Mosaic Streaming",
        "reads": "letterboxed pages in MDS shards",
        "packages": ("mosaicml-streaming", "torchvision"),
    },
}
COLUMNS = {"name": "str"} | dict.fromkeys(("image", "vertices", "offsets", "ignore"), "ndarray")


def prepare(course: Course) -> None:
    work = PageWork(course, False)
    with MDSWriter(out=str(course.store), columns=COLUMNS) as writer:
        for page in annotated_pages(course):
            writer.write(work.record(page))


class StoredPages(StreamingDataset):  # type: ignore[misc]
    def __init__(self, course: Course, training: bool) -> None:
        super().__init__(local=str(course.store), shuffle=training, batch_size=course.batch_size)
        self.work = PageWork(course, training)

    def __getitem__(self, index: Any) -> Item:
        return self.work.finish_record(super().__getitem__(index))


def open_loader(course: Course, training: bool) -> Any:
    # As its documentation advises for what a killed run left behind.
    clean_stale_shared_memory()
    return torch_loader(StoredPages(course, training), course, StreamingDataLoader)
