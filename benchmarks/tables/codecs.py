"""Lossless codecs over letterboxed pages without their border, one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import cramjam
import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Data, Figure, Row, Target, benchmark
from benchmarks.loaders import pages
from ocr.pipeline.dense import DensePage

Page = NDArray[np.uint8]
Codec = tuple[Callable[[Page], bytes], Callable[[bytes, Page], object]]
DENSE = "dense: row differences, LZ4"


def general(compress: Callable[[Any], Any], decompress: Callable[[Any, Any], Any]) -> Codec:
    """A codec of bytes."""
    return (
        lambda page: bytes(compress(page.reshape(-1).data)),
        lambda data, out: decompress(data, out.reshape(-1).data),
    )


def image(extension: str, *parameters: int) -> Codec:
    """A lossless image format."""
    return (
        lambda page: cv2.imencode(extension, page, parameters)[1].tobytes(),
        lambda data, out: np.copyto(out, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)),
    )


CODECS: dict[str, Codec] = {
    "raw": (bytes, lambda data, out: np.copyto(out.reshape(-1), np.frombuffer(data, np.uint8))),
    DENSE: (
        lambda page: DensePage.pack(page).data.tobytes(),
        lambda data, out: DensePage(np.frombuffer(data, np.uint8)).write(out),
    ),
    "LZ4": general(cramjam.lz4.compress_block, cramjam.lz4.decompress_block_into),
    "Zstandard 1": general(lambda data: cramjam.zstd.compress(data, level=1), cramjam.zstd.decompress_into),
    "Zstandard 3": general(lambda data: cramjam.zstd.compress(data, level=3), cramjam.zstd.decompress_into),
    "Snappy": general(cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw_into),
    "PNG": image(".png", cv2.IMWRITE_PNG_COMPRESSION, 1),
    "WebP": image(".webp", cv2.IMWRITE_WEBP_QUALITY, 101),
}


@benchmark("codecs", table="results#codecs", rounds=6)
def codecs(data: Data) -> Iterator[Row]:
    """Bytes, reading and writing of each codec."""
    dataset = pages(data.receipts)
    images = [content(dataset.page(index).image) for index in range(min(len(dataset), 40))]
    for name, (pack, unpack) in CODECS.items():
        packed, out = [pack(page) for page in images], [np.empty_like(page) for page in images]
        reading = mean_of_fastest([partial(unpack, *both) for both in zip(packed, out, strict=True)], data.rounds)
        writing = mean_of_fastest([partial(pack, page) for page in images], min(data.rounds, 2))
        assert all(np.array_equal(a, b) for a, b in zip(out, images, strict=True)), name
        size = sum(map(len, packed)) / len(images)
        kept = Target(size, "B", at_most=250e3) if name == DENSE else Figure(size, "B")
        cells = {"a page": kept, "read": Figure(reading, "s"), "write": Figure(writing, "s")}
        yield Row(name, cells, f"{len(images)} pages without their border, one thread")


def content(page: Page) -> Page:
    """A page without its padding."""
    used = page.any(axis=2)
    rows, columns = np.flatnonzero(used.any(axis=1)), np.flatnonzero(used.any(axis=0))
    return np.ascontiguousarray(page[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])


def mean_of_fastest(calls: Sequence[Callable[[], object]], rounds: int) -> float:
    """Seconds of the fastest round of each call, on average over the calls."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - start)
    return sum(best) / len(best)
