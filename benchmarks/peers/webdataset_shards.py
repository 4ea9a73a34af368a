"""webdataset (https://webdataset.github.io/webdataset): the image files in tar shards, read by torch workers."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from torch.utils.data import default_collate

from benchmarks.peers.common import Course, Item, Page, PageWork, annotated_pages, decode_with_pillow, torch_loader
from ocr.geometry.polygons import Polygons

ABOUT = {
    "webdataset": {"title": "webdataset, Pillow", "reads": "image files in tar shards", "packages": ("webdataset",)},
}
SHARDS_PER_WORKER = 2
SHUFFLED = 1000
"""Samples in the shuffle buffer, as in the documentation."""


def prepare(course: Course) -> None:
    pages = annotated_pages(course)
    per_shard = -(-len(pages) // (SHARDS_PER_WORKER * max(1, course.workers)))
    pattern = str(course.store / "pages-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=per_shard, verbose=0) as writer:
        for number, page in enumerate(pages):
            words = [points.tolist() for points in page.polygons]
            noted = {"name": page.name, "words": words, "ignore": page.polygons.ignore.tolist()}
            writer.write({"__key__": f"{number:06d}", "image": Path(page.path).read_bytes(), "json": noted})


def finish(work: PageWork, stored: dict[str, Any]) -> Item:
    noted = stored["json"]
    page = Page(noted["name"], "", Polygons.pack(noted["words"], np.array(noted["ignore"], dtype=np.bool_)))
    return work(decode_with_pillow(io.BytesIO(stored["image"])), page)


def open_loader(course: Course, training: bool) -> Any:
    urls = sorted(map(str, course.store.glob("*.tar")))
    dataset = webdataset.WebDataset(urls, shardshuffle=len(urls) if training else False)
    if training:
        dataset = dataset.shuffle(SHUFFLED)
    pages = dataset.decode().map(partial(finish, PageWork(course, training)))
    batches = pages.batched(course.batch_size, collation_fn=default_collate)
    return torch_loader(batches, course, webdataset.WebLoader, batch_size=None, collate_fn=None)
