"""Finder: an upload to its found pages, in threads, within the limits."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import cv2

from ocr.deploy.detector import Detector
from ocr.deploy.inputs import PageSource, pages_of
from ocr.deploy.page import TextPage
from ocr.deploy.pdf import PDF_MAGIC
from ocr.deploy.service.limits import Limits, unknown_kind, unreadable
from ocr.deploy.service.micro_batches import MicroBatches
from ocr.errors import ImageError, ImageSizeError
from ocr.pipeline.decode import image_format

PICTURE_SIDE = 1600
"""Longest side of a page that is sent back to be looked at."""
T = TypeVar("T")


class Finder:
    """Finds the text of uploads, one thread per page; decoded pages are as many as threads, whatever waits.

    PDFs have threads of their own: pdfium renders one page at a time, and a page that takes forever must not keep
    images waiting.
    """

    def __init__(
        self,
        detector: Detector,
        limits: Limits,
        batch_size: int = 4,
        wait_seconds: float = 0.005,
        on_batch: Callable[[int], None] = lambda pages: None,
    ) -> None:
        self.limits = limits
        self.model = MicroBatches(detector.runtime, batch_size, wait_seconds, on_batch)
        self.detector = copy(detector)
        self.detector.runtime = self.model
        # While the model has a batch, two more pages are decoded.
        self._images = ThreadPoolExecutor(batch_size + 2, thread_name_prefix="image")
        self._pdfs = ThreadPoolExecutor(2, thread_name_prefix="pdf")

    async def find(self, data: bytes, box_thresh: float, with_pictures: bool) -> list[dict[str, Any]]:
        """One dict per page, in order; raises Refusal."""
        is_pdf = data.startswith(PDF_MAGIC)
        if not is_pdf and image_format(data[:16]) is None:
            raise unknown_kind()
        threads = self._pdfs if is_pdf else self._images
        try:
            sources = await _in(threads, lambda: list(islice(pages_of(data), self.limits.pages + 1)))
            if len(sources) > self.limits.pages:
                raise self.limits.too_many_pages()
            detector = copy(self.detector)
            detector.boxes = replace(detector.boxes, box_thresh=box_thresh)
            pages = [_in(threads, partial(_on_page, detector, page, with_pictures)) for page in sources]
            try:
                return await asyncio.gather(*pages)
            finally:
                # After a bad page, or without a client, those that wait for a thread are not needed.
                for page in pages:
                    page.cancel()
        except ImageSizeError as error:
            raise self.limits.too_many_pixels() from error
        except ImageError as error:
            raise unreadable("PDF" if is_pdf else "image") from error

    def close(self) -> None:
        """Start no further page, and end the model. A page that nobody waits for any more may still be at work."""
        for threads in (self._images, self._pdfs):
            threads.shutdown(wait=False, cancel_futures=True)
        self.model.close()


def _on_page(detector: Detector, source: PageSource, with_picture: bool) -> dict[str, Any]:
    found = detector.on_page(source)
    answer = {"page": source.number or 1, **found.to_dict()}
    del answer["name"]
    return answer | {"picture": _picture(found)} if with_picture else answer


def _picture(page: TextPage) -> str:
    """The upright page as a JPEG for a browser, which cannot show PDFs and some formats by itself."""
    pixels = page.source.read(page.decode).image
    scale = min(1.0, PICTURE_SIDE / max(pixels.shape[:2]))
    size = [max(1, round(side * scale)) for side in pixels.shape[1::-1]]
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA) if scale < 1 else pixels
    encoded = cv2.imencode(".jpg", small[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode("ascii")


def _in(threads: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(threads, work)
