"""MONAI (https://docs.monai.io/en/stable/data.html): what its fixed transforms make, in memory or in files."""

from __future__ import annotations

from typing import Any

import torch
from monai.data import CacheDataset, DataLoader, PersistentDataset
from monai.transforms import Compose, RandomizableTransform, Transform

from benchmarks.peers.common import Course, Item, PageWork, annotated_pages, decode_with_pillow, torch_loader

ABOUT = {
    "monai-memory": {
        "title": "MONAI CacheDataset",
        "reads": "letterboxed pages and maps in memory",
        "packages": ("monai",),
        "settings": {"kind": "memory"},
    },
    "monai-disk": {
        "title": "MONAI PersistentDataset",
        "reads": "letterboxed pages and maps in files",
        "packages": ("monai",),
        "settings": {"kind": "disk"},
    },
}


class Fixed(Transform):  # type: ignore[misc]
    """What is cached: in training the page, in validation its maps too."""

    def __init__(self, course: Course, training: bool) -> None:
        self.work, self.training = PageWork(course, False), training
        self.pages = {page.path: page for page in annotated_pages(course)}

    def __call__(self, path: str) -> dict[str, Any]:
        page = self.pages[path]
        made = self.work.record(page) if self.training else self.work(decode_with_pillow(path), page)
        return {key: value if isinstance(value, str) else torch.from_numpy(value.copy()) for key, value in made.items()}


class Augment(RandomizableTransform):  # type: ignore[misc]
    def __init__(self, course: Course) -> None:
        super().__init__()
        self.work = PageWork(course, True)

    def __call__(self, record: dict[str, Any]) -> Item:
        return self.work.finish_record(record)


def open_loader(course: Course, training: bool, kind: str) -> Any:
    steps = [Fixed(course, training), *([Augment(course)] if training else [])]
    paths = [page.path for page in annotated_pages(course)]
    if kind == "memory":
        dataset = CacheDataset(paths, Compose(steps), num_workers=course.workers, progress=False)
    else:
        folder = course.store / ("training" if training else "validation")
        dataset = PersistentDataset(paths, Compose(steps), cache_dir=folder)
    return torch_loader(dataset, course, DataLoader, shuffle=training)
