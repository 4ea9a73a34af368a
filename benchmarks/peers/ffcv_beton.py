"""FFCV (https://docs.ffcv.io): letterboxed pages in one file; threads draw maps, as its JIT takes no kernel of ours."""

from __future__ import annotations

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter

from benchmarks.peers.common import Course, DecodedPages, FinishedInThreads, Pixels

ABOUT = {
    "ffcv": {
        "title": "FFCV",
        "reads": "letterboxed pages in one file",
        "packages": ("ffcv",),
        "hint": "pkg-config, libopencv-dev and libturbojpeg0-dev",
    },
}
FILE = "pages.beton"


class LetterboxedPages(DecodedPages):
    def __getitem__(self, index: int) -> tuple[Pixels, int]:  # type: ignore[override]
        return self.work.record(self.pages[index])["image"], index


def prepare(course: Course) -> None:
    fields = {"image": RGBImageField(write_mode="raw"), "number": IntField()}
    writer = DatasetWriter(str(course.store / FILE), fields, num_workers=max(1, course.workers))
    writer.from_indexed_dataset(LetterboxedPages(course, False))


def open_loader(course: Course, training: bool) -> FinishedInThreads:
    pixels = Loader(
        str(course.store / FILE),
        batch_size=course.batch_size,
        num_workers=max(1, course.workers),
        order=OrderOption.RANDOM if training else OrderOption.SEQUENTIAL,
        drop_last=False,
        pipelines={"image": [SimpleRGBImageDecoder(), ToTensor()], "number": [IntDecoder(), ToTensor()]},
    )
    return FinishedInThreads(course, training, pixels)
