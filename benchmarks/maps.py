"""Target maps: the compiled kernel against the classic NumPy formula, on the same polygons.

python benchmarks/maps.py --data DIR        # DIR/images/val, DIR/jsons/val.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import add_data_options, console, data_or_synthetic, exit_with, show, take_turns
from benchmarks.reference import reference_maps
from ocr.datasets import DBTransforms, OCRDataset
from ocr.geometry.polygons import Polygons
from ocr.malloc import keep_freed_memory
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets


def letterboxed_polygons(data: Path, split: str, size: int) -> list[Polygons]:
    """The polygons of every page as the targets stage gets them, without the ones that are left out of the loss."""
    dataset = OCRDataset(
        data / "images" / split, data / "jsons" / f"{split}.json", DBTransforms([Letterbox(size)]), on_bad_sample="skip"
    )
    pages = []
    for index in range(len(dataset)):
        polygons = Letterbox(size)(dataset.decode.measure(dataset.source.read(index))).polygons
        pages.append(polygons.select(~polygons.ignore))
    return pages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_options(parser, rounds=5)
    parser.add_argument("--size", type=int, default=640, help="side of the maps (default: 640)")
    options = parser.parse_args()
    # The same conditions for both: one thread, and malloc that keeps freed pages.
    cv2.setNumThreads(1)
    keep_freed_memory()
    size = options.size
    pages = letterboxed_polygons(data_or_synthetic(options.data), options.split, size)
    # The reference has no minimum text size; for equal work, neither does the kernel here.
    targets = Targets(min_text_size=0)
    prob_differs, largest_gap = 0, 0.0
    for polygons in pages:
        prob_map, thresh_map = reference_maps(list(polygons), size, size)
        maps = targets.draw(polygons, size, size)
        prob_differs += int(np.count_nonzero(maps.prob_map != prob_map))
        largest_gap = max(largest_gap, float(np.abs(maps.thresh_map - thresh_map).max()))
    best = take_turns(
        {
            "classic NumPy": lambda: [reference_maps(list(polygons), size, size) for polygons in pages],
            "ocr.pipeline.targets": lambda: [targets.draw(polygons, size, size) for polygons in pages],
        },
        options.rounds,
    )
    lines = np.mean([len(polygons) for polygons in pages])
    show(f"Maps of {len(pages)} pages, {lines:.0f} lines each, {size}x{size}", best, len(pages), "classic NumPy")
    console.print(
        f"probability maps: {prob_differs} pixels differ; threshold maps: largest difference {largest_gap:.1e}"
    )
    return int(prob_differs > 0 or largest_gap > 0.03)


if __name__ == "__main__":
    exit_with(main)
