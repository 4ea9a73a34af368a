"""torch's DataLoader with torchvision's decoder (https://docs.pytorch.org/vision/stable/io.html)."""

from __future__ import annotations

from typing import Any

from torchvision.io import ImageReadMode, decode_image

from benchmarks.peers.common import Course, DecodedPages, Pixels, torch_loader

ABOUT = {
    "torchvision": {
        "title": "torch DataLoader, torchvision's decoder",
        "reads": "image files",
        "packages": ("torchvision",),
    },
}


def decode(path: str) -> Pixels:
    pixels: Pixels = decode_image(path, ImageReadMode.RGB, apply_exif_orientation=True).permute(1, 2, 0).numpy()
    return pixels


def open_loader(course: Course, training: bool) -> Any:
    return torch_loader(DecodedPages(course, training, decode), course, shuffle=training)
