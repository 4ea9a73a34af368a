"""SPDL (https://facebookresearch.github.io/spdl/main): its own FFmpeg decoder, in the threads of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import spdl.io
from PIL import Image
from spdl.pipeline import PipelineBuilder

from benchmarks.peers.common import ORIENTATION_TAG, Course, Item, Page, PageWork, annotated_pages, stack
from ocr.geometry.orientation import apply_orientation

ABOUT = {
    "spdl": {
        "title": "SPDL",
        "reads": "image files",
        "packages": ("spdl",),
        "hint": "FFmpeg's shared libraries (Debian: libavdevice59 libavfilter8)",
    },
}


class Epochs:
    """A pipeline per epoch, as its examples do."""

    def __init__(self, course: Course, training: bool) -> None:
        self.course, self.training = course, training
        self.pages, self.work = annotated_pages(course), PageWork(course, training)

    def __iter__(self) -> Iterator[Item]:
        workers = max(1, self.course.workers)
        order = np.random.default_rng().permutation(len(self.pages)) if self.training else range(len(self.pages))
        pipeline = (
            PipelineBuilder()
            .add_source([self.pages[number] for number in order])
            .pipe(self._load, concurrency=workers, output_order="input")
            .aggregate(self.course.batch_size)
            .pipe(stack)
            .add_sink(2)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline

    def _load(self, page: Page) -> Item:
        pixels = spdl.io.to_numpy(spdl.io.load_image(page.path, filter_desc="format=pix_fmts=rgb24"))
        with Image.open(page.path) as opened:
            return self.work(apply_orientation(pixels, opened.getexif().get(ORIENTATION_TAG, 1)), page)


open_loader = Epochs
