"""Target maps: the compiled kernel against the classic NumPy formula, on the same polygons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Data, Figure, Row, Target, benchmark, fastest, interleave, timed
from benchmarks.loaders import SIZE, split_paths
from benchmarks.reference import reference_maps
from ocr.datasets import DBTransforms, OCRDataset
from ocr.geometry.polygons import Polygons
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets


@benchmark("maps", rounds=5)
def maps(data: Data) -> Iterator[Row | str]:
    """Maps of a page, one thread."""
    pages = letterboxed_polygons(data.receipts)
    # The reference has no minimum text size; for equal work, neither does the kernel here.
    targets = Targets(min_text_size=0)
    best = fastest(
        interleave(
            {
                "classic NumPy": timed(lambda: [reference_maps(list(page), SIZE, SIZE) for page in pages]),
                "ocr.pipeline.targets": timed(lambda: [targets.draw(page, SIZE, SIZE) for page in pages]),
            },
            data.rounds,
        )
    )
    differs, gap = compare(pages, targets)
    lines = np.mean([len(page) for page in pages])
    caption = f"Maps of {len(pages)} pages, {lines:.0f} lines each, {SIZE}x{SIZE}"
    for name, seconds in best.items():
        ratio = best["classic NumPy"] / seconds
        fast = Target(ratio, " x", at_least=20) if name != "classic NumPy" else Figure(ratio, " x")
        yield Row(name, {"a page": Figure(seconds / len(pages), "s"), "times classic NumPy": fast}, caption)
    exact = "Differences to the classic formula"
    yield Row("probability maps, pixels", {"largest": Target(differs, at_most=0)}, exact)
    yield Row("threshold maps", {"largest": Target(gap, at_most=1e-6)}, exact)


def letterboxed_polygons(folder: Path) -> list[Polygons]:
    """The polygons of every page as the targets stage gets them, without the ones that are left out of the loss."""
    stages = DBTransforms([Letterbox(SIZE)])
    dataset = OCRDataset(*split_paths(folder, "val"), stages, on_bad_sample="skip")
    pages = []
    for index in range(len(dataset)):
        polygons = Letterbox(SIZE)(dataset.decode.measure(dataset.source.read(index))).polygons
        pages.append(polygons.select(~polygons.ignore))
    return pages


def compare(pages: list[Polygons], targets: Targets) -> tuple[int, float]:
    """Pixels of the probability maps that differ, and the largest difference of the threshold maps."""
    differs, gap = 0, 0.0
    for polygons in pages:
        prob_map, thresh_map = reference_maps(list(polygons), SIZE, SIZE)
        drawn = targets.draw(polygons, SIZE, SIZE)
        differs += int(np.count_nonzero(drawn["prob_map"] != prob_map))
        gap = max(gap, float(np.abs(drawn["thresh_map"] - thresh_map).max()))
    return differs, gap
