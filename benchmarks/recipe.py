"""What page size and shrink ratio allow: the recall of boxes that are read back from the targets themselves.

python benchmarks/recipe.py --data DIR     # its training pages; what experiment=documents derives is marked with *

No model is better than its targets. Those of a model are softer, which a Gaussian stands in for: kernels that lie close
together run into one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from hydra import compose, initialize_config_dir
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console, data_or_synthetic, exit_with
from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.page_statistics import measure_pages
from ocr.evaluation.boxes import BoxesFromMap
from ocr.evaluation.hmean import HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.recipe import Recipe, settle
from ocr.pipeline.targets import Targets

IOUS = (0.5, 0.7)
SOFT_SIGMA = 1.5
"""Pixels: the width of the edges that a model of stride 4 draws."""


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The text of a page whose longest side is 1."""

    text: Polygons
    width: float
    height: float

    def at(self, size: int) -> tuple[Polygons, int, int]:
        """Its polygons, width and height in pixels."""
        polygons = self.text.moved(np.diag([size, size, 1.0]))
        return polygons, int(np.ceil(self.width * size)) + 1, int(np.ceil(self.height * size)) + 1


def read_pages(dataset: OCRDataset, every: int) -> Iterator[Page]:
    """Every n-th page, by its header and annotation."""
    for index in range(0, len(dataset), every):
        page = dataset.decode.measure(dataset.source.read(index))
        width, height = page.size
        scale = 1 / max(width, height)
        yield Page(page.polygons.moved(np.diag([scale, scale, 1.0])), width * scale, height * scale)


def recalls(pages: Sequence[Page], size: int, shrink_ratio: float, sigma: float) -> list[float]:
    """The share of the text whose box, from the map that is drawn of it, has each of IOUS."""
    targets = Targets(shrink_ratio=shrink_ratio, min_text_size=0.0)
    boxes = BoxesFromMap(thresh=0.4, box_thresh=0.0, use_polygon=False, min_size=0, shrink_ratio=shrink_ratio)
    metrics = [HmeanIoU(iou_threshold=iou) for iou in IOUS]
    for page in pages:
        polygons, width, height = page.at(size)
        prob_map = targets.draw(polygons, width, height).prob_map
        soft = cv2.GaussianBlur(prob_map, (0, 0), sigma) if sigma else prob_map
        found = boxes(soft).polygons
        for metric in metrics:
            metric.update(found, polygons)
    return [float(metric.compute()["recall"]) for metric in metrics]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="dataset: images/<split>/ and jsons/<split>.json")
    parser.add_argument("--split", default="train")
    parser.add_argument("--every", type=int, default=3, help="use every n-th page")
    parser.add_argument("--sizes", type=int, nargs="+", default=[640, 800, 960, 1120, 1280])
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.4, 0.5, 0.6, 0.7])
    options = parser.parse_args()
    data = data_or_synthetic(options.data, pages=2, train=24)
    dataset = OCRDataset(data / "images" / options.split, data / "jsons" / f"{options.split}.json", DBTransforms([]))
    statistics = measure_pages(dataset)
    chosen = Recipe().size(statistics)[0], Recipe().shrink_ratio(statistics)[0]
    pages = list(read_pages(dataset, options.every))
    title = f"Recall at IoU 0.5/0.7 of exact maps, then of soft ones, {len(pages)} pages; * derived from them"
    table = Table(title=title, title_justify="left")
    for column in ("size", "low text", *(f"r = {ratio:g}" for ratio in options.ratios)):
        table.add_column(column, justify="right")
    for size in options.sizes:
        cells = []
        for ratio in options.ratios:
            exact, soft = (recalls(pages, size, ratio, sigma) for sigma in (0.0, SOFT_SIGMA))
            cell = "\n".join(f"{a:.3f}/{b:.3f}" for a, b in (exact, soft))
            cells.append(f"{cell}*" if (size, ratio) == chosen else cell)
        table.add_row(str(size), f"{statistics.text_height * size:.1f} px", *cells)
    console.print(table)
    show_derived(data)
    return 0


def show_derived(data: Path) -> None:
    """What `experiment=documents` makes of its `auto`, and why."""
    words = [f"dataset_base_path={data.resolve()}", "experiment=documents"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        settle(compose("train", words), console)


if __name__ == "__main__":
    exit_with(main)
