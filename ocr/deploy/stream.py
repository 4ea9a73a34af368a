"""stream: pages one after the other, with decoding, the model and boxes at work at the same time."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ocr.checks import check_choice, check_integer
from ocr.deploy.inputs import PagePixels, PageSource, numbered
from ocr.deploy.page import TextPage
from ocr.errors import ImageError
from ocr.evaluation.boxes import BoxPool
from ocr.pipeline.sample import Sample

if TYPE_CHECKING:
    from ocr.deploy.detector import Detector

log = logging.getLogger(__name__)
MAX_WAITING = 4
"""Batches of pages that wait for others of their shape; the oldest shape then goes with fewer."""

Prepared = tuple[int, PageSource, Sample]
Watch = Callable[[PageSource, Sample, NDArray[np.float32]], None]
"""Called with each page, as the model sees it whole, and its probability map, before the page is given out."""


class PageStream(Iterator[TextPage]):
    """Iterates over found pages in the order of the sources; memory does not grow with their number."""

    def __init__(
        self,
        detector: Detector,
        sources: Iterable[PageSource],
        batch_size: int = 8,
        readers: int = 2,
        on_bad_sample: str = "raise",
        watch: Watch | None = None,
    ) -> None:
        check_integer("batch_size", batch_size, minimum=1)
        check_integer("readers", readers, minimum=1)
        check_choice("on_bad_sample", on_bad_sample, ("raise", "skip"))
        self.detector, self.batch_size, self.readers = detector, batch_size, readers
        self.on_bad_sample, self.watch = on_bad_sample, watch
        self.skipped: dict[str, str] = {}
        """Name of each page that was left out, in a PDF with its number, and why."""
        self._found: dict[int, TextPage] = {}
        self._batches: deque[list[Prepared]] = deque()
        self._pages = self._run(sources)

    def __next__(self) -> TextPage:
        return next(self._pages)

    def close(self) -> None:
        """End the threads of a stream that is not read to its end."""
        self._pages.close()

    def _run(self, sources: Iterable[PageSource]) -> Generator[TextPage, None, None]:
        by_shape: dict[tuple[int, ...], list[Prepared]] = {}
        following = 0
        with BoxPool(self.detector.boxes) as pool:
            for prepared in self._prepared(sources):
                number, page, sample = prepared
                if self.detector.is_large(sample):
                    # Decoded once more: pages that are read ahead would take too much memory.
                    found = self.detector.tiles.find(self.detector, PagePixels(page), sample)
                    self._found[number] = self.detector.text_page(page, sample, found)
                    if self.watch is not None:
                        self.watch(page, sample, self.detector.maps(sample.image[None])[0])
                    batch = []
                else:
                    batch = self._next_batch(by_shape, prepared)
                if batch:
                    self._submit(batch, pool)
                    self._collect(pool, keep=1)
                while following in self._found:
                    yield self._found.pop(following)
                    following += 1
            for batch in by_shape.values():
                self._submit(batch, pool)
            self._collect(pool, keep=0)
            yield from (self._found.pop(number) for number in sorted(self._found))

    def _next_batch(self, by_shape: dict[tuple[int, ...], list[Prepared]], prepared: Prepared) -> list[Prepared]:
        """Put a page to the others of its shape; returns pages that are to go together now, if any."""
        batch = by_shape.setdefault(prepared[2].image.shape, [])
        batch.append(prepared)
        if len(batch) < self.batch_size:
            if sum(map(len, by_shape.values())) < MAX_WAITING * self.batch_size:
                return []
            # The first key has the page that waits longest.
            batch = next(iter(by_shape.values()))
        return by_shape.pop(batch[0][2].image.shape)

    def _prepared(self, sources: Iterable[PageSource]) -> Iterator[Prepared]:
        """Pages as the model sees them, decoded ahead in threads."""
        with ThreadPoolExecutor(self.readers, thread_name_prefix="decode") as threads:
            try:
                readable = self._in_order(sources, threads)
                yield from ((number, *page) for number, page in enumerate(readable))
            finally:
                threads.shutdown(wait=True, cancel_futures=True)

    def _in_order(
        self, sources: Iterable[PageSource], threads: ThreadPoolExecutor
    ) -> Iterator[tuple[PageSource, Sample]]:
        ahead: deque[tuple[PageSource, Future[Sample]]] = deque()
        for page in sources:
            ahead.append((page, threads.submit(self.detector.prepare, page)))
            if len(ahead) > self.batch_size + self.readers:
                yield from self._first(ahead)
        while ahead:
            yield from self._first(ahead)

    def _first(self, ahead: deque[tuple[PageSource, Future[Sample]]]) -> Iterator[tuple[PageSource, Sample]]:
        page, future = ahead.popleft()
        try:
            yield page, future.result()
        except ImageError as error:
            self._skip(numbered(page.name, page.number), error)

    def _skip(self, name: str, error: ImageError) -> None:
        if self.on_bad_sample == "raise":
            raise error
        # Bytes and arrays share a name.
        self.skipped[name if name not in self.skipped else f"{name} ({len(self.skipped) + 1})"] = str(error)
        log.warning("skipped %s", error)

    def _submit(self, batch: list[Prepared], pool: BoxPool) -> None:
        samples = [sample for *_, sample in batch]
        maps = self.detector.maps(np.stack([sample.image for sample in samples]))
        if self.watch is not None:
            for (_, page, sample), prob_map in zip(batch, maps, strict=True):
                self.watch(page, sample, prob_map)
        pool.submit(maps, [sample.inverse_matrix for sample in samples], [sample.shape for sample in samples])
        self._batches.append(batch)

    def _collect(self, pool: BoxPool, keep: int) -> None:
        for pages in pool.drain(keep):
            for (number, page, sample), found in zip(self._batches.popleft(), pages, strict=True):
                self._found[number] = self.detector.text_page(page, sample, found)
