"""Hugging Face datasets: a folder of images, transformed when it is read, in torch's DataLoader.

https://huggingface.co/docs/datasets/image_load
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, load_dataset

from benchmarks.peers.common import Course, Page, PageWork, annotated_pages, torch_loader

ABOUT = {"datasets": {"title": "Hugging Face datasets", "reads": "image files", "packages": ("datasets",)}}


class Work:
    def __init__(self, course: Course, training: bool) -> None:
        self.work = PageWork(course, training)
        self.pages: dict[str, Page] = {page.name: page for page in annotated_pages(course)}

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        items = []
        for image, name in zip(rows["image"], rows["name"], strict=True):
            items.append(self.work(np.asarray(image.convert("RGB")), self.pages[name]))
        return {key: [item[key] for item in items] for key in items[0]}


def rows(course: Course) -> Dataset:
    """Its table of the folder, with the names of the files."""
    table = load_dataset(
        "imagefolder", data_dir=str(course.images), split="train", drop_labels=True, cache_dir=str(course.store)
    )
    files = table.data.column("image").combine_chunks().field("path").to_pylist()
    return table.add_column("name", [Path(file).name for file in files])


def prepare(course: Course) -> None:
    rows(course)


def open_loader(course: Course, training: bool) -> Any:
    return torch_loader(rows(course).with_transform(Work(course, training)), course, shuffle=training)
