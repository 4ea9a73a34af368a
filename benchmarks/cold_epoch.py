"""One epoch without a cache, one process: decode, letterbox, normalise, maps; against the plain reference.

python benchmarks/cold_epoch.py --data DIR        # DIR/images/val, DIR/jsons/val.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import add_data_options, console, data_or_synthetic, exit_with, show, take_turns
from benchmarks.reference import ReferenceDataset
from ocr.datasets import DBTransforms, OCRDataset
from ocr.malloc import keep_freed_memory
from ocr.pipeline.decode import decode_pixels
from ocr.pipeline.device import Normalize
from ocr.pipeline.image_header import read_header
from ocr.pipeline.prefix import Letterbox


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_options(parser, rounds=3)
    parser.add_argument("--size", type=int, default=640, help="side of the letterboxed page (default: 640)")
    options = parser.parse_args()
    data, split, size = data_or_synthetic(options.data), options.split, options.size
    # The same conditions for all: one thread, and malloc that keeps freed pages.
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    keep_freed_memory()
    images, annotation = data / "images" / split, data / "jsons" / f"{split}.json"

    def dataset(scaled: str, normalize: str) -> OCRDataset:
        transform = DBTransforms([Letterbox(size), Normalize()], normalize=normalize)
        return OCRDataset(images, annotation, transform, image_loading_config={"scaled": scaled}, use_stored_maps=False)

    exact, scaled, device = dataset("off", "host"), dataset("auto", "host"), dataset("auto", "device")
    reference = ReferenceDataset(images, annotation, size)
    encoded = [exact.source.read(index).encoded for index in range(len(exact))]
    headers = [read_header(data, "", 10**9) for data in encoded]

    def epoch(of: torch.utils.data.Dataset[object]) -> Callable[[], None]:
        return lambda: [of[index] for index in range(len(encoded))] and None  # type: ignore[func-returns-value]

    def decode_only() -> None:
        for data, header in zip(encoded, headers, strict=True):
            decode_pixels(data, header, "", size)

    same = sum(torch.equal(reference[index]["image"], exact[index]["image"]) for index in range(len(exact)))
    best = take_turns(
        {
            "reference": epoch(reference),
            "GlyphFeed, decode.scaled=off": epoch(exact),
            "GlyphFeed": epoch(scaled),
            "GlyphFeed, normalize=device": epoch(device),
            "(scaled decode alone: the limit)": decode_only,
        },
        options.rounds,
    )
    show(f"A cold epoch of {len(encoded)} pages, {size}x{size}, one thread", best, len(encoded), "reference")
    console.print(f"decode.scaled=off: {same} of {len(encoded)} images equal the reference's, bit for bit")
    return 0


if __name__ == "__main__":
    exit_with(main)
