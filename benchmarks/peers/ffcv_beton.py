"""FFCV: letterboxed pages in one .beton file; maps are drawn by threads, since its JIT takes no kernel of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter

from benchmarks.peers.common import Course, DecodedPages, FinishedInThreads, Pixels

FILE = "pages.beton"


class LetterboxedPages(DecodedPages):
    def __getitem__(self, index: int) -> tuple[Pixels, int]:  # type: ignore[override]
        page = self.pages[index]
        return self.work.fixed(self.decode(page.path), page).image, index


def prepare(course: Course) -> None:
    course.store.mkdir(parents=True, exist_ok=True)
    fields = {"image": RGBImageField(write_mode="raw"), "number": IntField()}
    writer = DatasetWriter(str(course.store / FILE), fields, num_workers=max(1, course.workers))
    writer.from_indexed_dataset(LetterboxedPages(course, False))


class Pixelwise:
    """Pixels and numbers of pages, batch by batch."""

    def __init__(self, course: Course, training: bool) -> None:
        self.loader = Loader(
            str(course.store / FILE),
            batch_size=course.batch_size,
            num_workers=max(1, course.workers),
            order=OrderOption.RANDOM if training else OrderOption.SEQUENTIAL,
            drop_last=False,
            pipelines={"image": [SimpleRGBImageDecoder(), ToTensor()], "number": [IntDecoder(), ToTensor()]},
        )

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.loader)


def open_loader(course: Course, training: bool) -> FinishedInThreads:
    return FinishedInThreads(course, training, Pixelwise(course, training))
