"""worker: an upload to its found pages, in threads, within the limits; pages share calls of the model."""

from __future__ import annotations

import asyncio
import base64
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.checks import Range, check_integer
from ocr.deploy.detector import Detector
from ocr.deploy.documents import PDF_MAGIC
from ocr.deploy.inputs import PageSource, pages_of
from ocr.deploy.page import TextPage
from ocr.deploy.runtimes import Runtime
from ocr.deploy.service.limits import Limits, unknown_kind, unreadable
from ocr.errors import ConfigError, ImageError, ImageSizeError
from ocr.pipeline.decode import JPEG_FORMATS, image_format

PICTURE_SIDE = 1600
"""Longest side of a page that is sent back to be looked at."""
MAX_STUCK = 16
"""Threads that can hang in a page beyond its time while others take their places."""
START_OF_SCAN = re.compile(rb"\xff\xda\x00")
T = TypeVar("T")


class DetectionWorker:
    """Finds the text of uploads, one thread per page; decoded pages are as many as threads, whatever waits.

    PDFs have threads of their own: pdfium renders one page at a time, and images do not wait for it.
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
        self._images = PageThreads(batch_size + 2, limits.seconds, "image")
        self._pdfs = PageThreads(2, limits.seconds, "pdf")

    async def find(self, data: bytes, box_thresh: float, with_pictures: bool) -> list[dict[str, Any]]:
        """One dict per page, in order; raises Refusal."""
        is_pdf = data.startswith(PDF_MAGIC)
        kind = image_format(data[:16])
        if not is_pdf and kind is None:
            raise unknown_kind()
        if kind in JPEG_FORMATS and len(START_OF_SCAN.findall(data)) > self.limits.scans:
            raise self.limits.too_many_scans()
        threads = self._pdfs if is_pdf else self._images
        try:
            sources = await threads.run(lambda: list(islice(pages_of(data), self.limits.pages + 1)))
            if len(sources) > self.limits.pages:
                raise self.limits.too_many_pages()
            detector = copy(self.detector)
            detector.boxes = replace(detector.boxes, box_thresh=box_thresh)
            pages = [
                asyncio.ensure_future(threads.run(partial(_on_page, detector, page, with_pictures))) for page in sources
            ]
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
        """Start no further page, and end the model. A page whose client is gone might still be at work."""
        for threads in (self._images, self._pdfs):
            threads.close()
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


class PageThreads:
    """Threads for pages, `count` at once. A page that is at work after `seconds` no longer counts: the thread of a
    decoder that hangs is lost, and its place is not. `MAX_STUCK` threads can hang.
    """

    def __init__(self, count: int, seconds: float, name: str) -> None:
        self.seconds = seconds
        self._free = asyncio.Semaphore(count)
        self._threads = ThreadPoolExecutor(count + MAX_STUCK, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of the work; cancelled before it has begun, it is not done."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        place = _Place(self._free)
        loop.call_later(self.seconds, place.leave)

        def leave(future: Future[T] | None = None) -> None:
            # The loop has ended if the service ended first.
            if not loop.is_closed():
                loop.call_soon_threadsafe(place.leave)

        try:
            future = self._threads.submit(work)
        except RuntimeError:  # It is closed.
            leave()
            raise
        future.add_done_callback(leave)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Start nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Place:
    """One of the places of a semaphore, left once."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free, self._is_left = free, False

    def leave(self) -> None:
        if not self._is_left:
            self._is_left = True
            self._free.release()


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    pages_bhwc: NDArray[np.uint8]
    maps: Future[NDArray[np.float32]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class MicroBatches:
    """A runtime for many threads: pages of one size that come within `wait_seconds` go into one call of `runtime`.

    While the model works, more of them gather for its next call. At most as many pages wait as there are threads that
    call; each is blocked until its maps are there. `runtime` itself is called by one thread only.
    """

    def __init__(
        self,
        runtime: Runtime,
        batch_size: int = 4,
        wait_seconds: float = 0.005,
        on_batch: Callable[[int], None] = lambda pages: None,
    ) -> None:
        check_integer("batch_size", batch_size, minimum=1)
        if wait_seconds not in Range(0):
            raise ConfigError(
                f"wait_seconds={wait_seconds!r} must be {Range(0)}", setting="wait_seconds", value=wait_seconds
            )
        self.runtime, self.batch_size, self.wait_seconds, self.on_batch = runtime, batch_size, wait_seconds, on_batch
        self._calls: list[_Call] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def __call__(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        call = _Call(pages_bhwc)
        with self._changed:
            if self._closed:
                raise RuntimeError("the model was asked after the service had ended")
            self._calls.append(call)
            self._changed.notify_all()
        return call.maps.result()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Finish the calls that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            sizes = [len(call.pages_bhwc) for call in batch]
            try:
                self.on_batch(sum(sizes))
                maps = self.runtime(np.concatenate([call.pages_bhwc for call in batch]))
                for call, own in zip(batch, np.split(maps, np.cumsum(sizes)[:-1]), strict=True):
                    call.maps.set_result(own)
            except Exception as error:  # Whatever a runtime raises is for the callers that wait for it.
                for call in batch:
                    if not call.maps.done():
                        call.maps.set_exception(error)

    def _next_batch(self) -> list[_Call]:
        """Calls for pages of the size that waits longest; none after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._calls or self._closed)
            if not self._calls:
                return []
            left = self._calls[0].arrived + self.wait_seconds - time.monotonic()
            self._changed.wait_for(lambda: self._is_full() or self._closed, max(0.0, left))
            batch = self._batch()
            self._calls = [call for call in self._calls if call not in batch]
            return batch

    def _is_full(self) -> bool:
        return sum(len(call.pages_bhwc) for call in self._batch()) >= self.batch_size

    def _batch(self) -> list[_Call]:
        shape = self._calls[0].pages_bhwc.shape[1:]
        batch: list[_Call] = []
        room = self.batch_size
        for call in self._calls:
            if call.pages_bhwc.shape[1:] == shape and (not batch or len(call.pages_bhwc) <= room):
                batch.append(call)
                room -= len(call.pages_bhwc)
        return batch
