"""An epoch without a cache, one process, one thread: decode, letterbox, normalise, maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import Dataset

from benchmarks.harness import Data, Figure, Row, benchmark, fastest, figure, interleave, timed
from benchmarks.loaders import SIZE, pages, split_paths
from benchmarks.reference import ReferenceDataset
from ocr.pipeline.decode import decode_pixels
from ocr.pipeline.image_header import read_header


@benchmark("cold")
def cold(data: Data) -> Iterator[Row | str]:
    """A page without a cache, against Pillow, Albumentations and NumPy."""
    exact = pages(data.receipts, form="float", image_loading_config={"scaled": "off"})
    reference = ReferenceDataset(*split_paths(data.receipts, "val"), SIZE)
    contenders = {
        "reference": epoch(reference),
        "GlyphFeed, decode.scaled=off": epoch(exact),
        "GlyphFeed": epoch(pages(data.receipts, form="float")),
        "GlyphFeed, normalize=device": epoch(pages(data.receipts)),
    }
    encoded = [exact.source.read(index).encoded for index in range(len(exact))]
    headers = [read_header(page, "", 10**9) for page in encoded]

    def decode_all() -> None:
        for page, header in zip(encoded, headers, strict=True):
            decode_pixels(page, header, "", SIZE)

    contenders["(decoding alone: the limit)"] = decode_all
    best = fastest(interleave({name: timed(run) for name, run in contenders.items()}, data.rounds))
    caption = f"A cold epoch of {len(exact)} pages, {SIZE}x{SIZE}, one thread, fastest of {data.rounds} rounds"
    for name, seconds in best.items():
        ratio = figure(best["reference"] / seconds, " x", at_least=4.8 if name == "GlyphFeed" else None)
        yield Row(name, {"a page": Figure(seconds / len(exact), "s"), "times the reference": ratio}, caption)
    same = sum(torch.equal(reference[index]["image"], exact[index]["image"]) for index in range(len(exact)))
    yield f"With decode.scaled=off, {same} of {len(exact)} images equal the reference's, bit for bit."


def epoch(dataset: Dataset[object]) -> Callable[[], None]:
    """Every item once."""

    def run() -> None:
        for index in range(len(dataset)):
            _ = dataset[index]

    return run
