"""Hugging Face datasets (https://huggingface.co/docs/datasets/image_load): a folder, transformed when it is read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, load_dataset

from benchmarks.peers.common import Course, Page, PageWork, annotated_pages, torch_loader

ABOUT = {"datasets": {"title": "Hugging Face datasets", "reads": "image files", "packages": ("datasets",)}}


def finish(work: PageWork, pages: dict[str, Page], rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    pairs = zip(rows["image"], rows["name"], strict=True)
    items = [work(np.asarray(image.convert("RGB")), pages[name]) for image, name in pairs]
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
    pages = {page.name: page for page in annotated_pages(course)}
    table = rows(course).with_transform(partial(finish, PageWork(course, training), pages))
    return torch_loader(table, course, shuffle=training)
