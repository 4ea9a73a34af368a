"""torchdata's StatefulDataLoader (https://meta-pytorch.org/data): torch's DataLoader that can resume."""

from __future__ import annotations

from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader

from benchmarks.peers.common import Course, DecodedPages, torch_loader

ABOUT = {
    "torchdata": {"title": "torchdata StatefulDataLoader, Pillow", "reads": "image files", "packages": ("torchdata",)},
}


def open_loader(course: Course, training: bool) -> Any:
    return torch_loader(DecodedPages(course, training), course, StatefulDataLoader, shuffle=training)
