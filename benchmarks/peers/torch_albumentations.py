"""torch's DataLoader (https://docs.pytorch.org/docs/stable/data.html), Pillow, Albumentations: the usual training."""

from __future__ import annotations

from typing import Any

import albumentations
import cv2

from benchmarks.peers.common import Course, DecodedPages, Page, PageWork, Pixels, torch_loader
from ocr.pipeline.sample import Sample

ABOUT = {
    "torch": {
        "title": "torch DataLoader, Pillow, Albumentations",
        "reads": "image files",
        "packages": ("albumentations",),
    },
}


class AlbumentationsWork(PageWork):
    """Pixels by Albumentations; polygons are moved by our matrix, which is faster than its keypoints."""

    def __init__(self, course: Course, training: bool) -> None:
        super().__init__(course, training)
        side = course.size
        self.resize = albumentations.Compose(
            [
                albumentations.LongestMaxSize(max_size=side),
                albumentations.PadIfNeeded(min_height=side, min_width=side, border_mode=cv2.BORDER_CONSTANT),
            ]
        )

    def fixed(self, image: Pixels, page: Page) -> Sample:
        return self.placed(self.resize(image=image)["image"], (image.shape[1], image.shape[0]), page)


def open_loader(course: Course, training: bool) -> Any:
    pages = DecodedPages(course, training)
    pages.work = AlbumentationsWork(course, training)
    return torch_loader(pages, course, shuffle=training)
