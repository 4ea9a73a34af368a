"""What page size and shrink ratio allow: text that comes back out of the targets themselves, without any model.

No model is better than its targets. Those of a model are softer, for which a Gaussian stands: kernels that lie close
together run into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import shapely
from numpy.typing import NDArray
from omegaconf import OmegaConf

from benchmarks.harness import Data, Figure, Place, Row, benchmark
from benchmarks.loaders import split_paths
from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.build import make
from ocr.datasets.page_statistics import PageStatistics, measure_pages
from ocr.evaluation.boxes import BoxesFromMap
from ocr.evaluation.hmean import HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.jobs.compose import compose_training
from ocr.jobs.recipe import RULES, Recipe
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets

SIZES, RATIOS = (640, 800, 960, 1120, 1280), (0.4, 0.5, 0.6, 0.7)
EVERY = 3
SOFT_SIGMA = 1.5
"""Pixels: the width of the edges that a model of stride 4 draws."""


class Page(NamedTuple):
    """The text of a page whose longest side is 1."""

    text: Polygons
    width: float
    height: float


@benchmark(
    "recipe",
    table=(Place("training#derived", caption="Derived"), Place("training#recipe", caption="Recall")),
    pages=("receipts", "forms"),
    rounds=1,
)
def recipe(data: Data) -> Iterator[Row]:
    """What `experiment=documents` derives from training pages, and the recall that sizes and shrink ratios allow."""
    for unit, folder in (("receipts", data.receipts), ("forms", data.forms)):
        dataset = OCRDataset(*split_paths(folder, "train"), DBTransforms([]))
        statistics = measure_pages(dataset)
        yield from derived(folder, statistics, unit)
        chosen = Recipe().size(statistics)[0], Recipe().shrink_ratio(statistics)[0]
        pages = list(read_pages(dataset))
        caption = f"Recall at IoU 0.5/0.7 of exact maps, then of soft ones, {len(pages)} {unit}; * derived from them"
        for size in SIZES:
            cells: dict[str, Figure | str] = {"low text": Figure(statistics.text_height * size, " px", digits=1)}
            for ratio in RATIOS:
                shown = (f"{a:.3f}/{b:.3f}" for a, b in (recalls(pages, size, ratio, s) for s in (0.0, SOFT_SIGMA)))
                cells[f"r = {ratio:g}"] = ", ".join(shown) + "*" * ((size, ratio) == chosen)
            yield Row(str(size), cells, caption)


def derived(folder: Path, pages: PageStatistics, unit: str) -> Iterator[Row]:
    """Each `auto` of the recipe as a number, and why."""
    words = [f"dataset_base_path={folder.resolve()}", "experiment=documents"]
    config = compose_training(words)
    rule = make(config.recipe, "recipe")
    caption = f"Derived from {pages.measured} of {pages.pages} {unit}, {pages.words_per_page:.0f} boxes each"
    for setting, derive in RULES.items():
        value, reason = derive(rule, pages, config)
        OmegaConf.update(config, setting, value)
        yield Row(setting, {"value": f"{value:g}", "because": reason}, caption)


def read_pages(dataset: OCRDataset) -> Iterator[Page]:
    """Every third page, by its header and annotation."""
    for index in range(0, len(dataset), EVERY):
        page = dataset.decode.measure(dataset.source.read(index))
        width, height = page.size
        scale = 1 / max(width, height)
        yield Page(page.polygons.moved(np.diag([scale, scale, 1.0])), width * scale, height * scale)


def recalls(pages: Sequence[Page], size: int, shrink_ratio: float, sigma: float) -> tuple[float, float]:
    """The share of the text whose box, from the map that is drawn of it, has an IoU over 0.5, and over 0.7."""
    targets = Targets(shrink_ratio=shrink_ratio, min_text_size=0.0)
    boxes = BoxesFromMap(thresh=0.4, box_thresh=0.0, use_polygon=False, min_size=0, shrink_ratio=shrink_ratio)
    loose, tight = HmeanIoU(iou_threshold=0.5), HmeanIoU(iou_threshold=0.7)
    for page in pages:
        polygons = page.text.moved(np.diag([size, size, 1.0]))
        width, height = (int(np.ceil(side * size)) + 1 for side in (page.width, page.height))
        prob_map = targets.draw(polygons, width, height).prob_map
        found = boxes(cv2.GaussianBlur(prob_map, (0, 0), sigma) if sigma else prob_map).polygons
        for metric in (loose, tight):
            metric.update(found, polygons)
    return float(loose.compute()["recall"]), float(tight.compute()["recall"])


@benchmark("perfect-maps", table="training#perfect-maps", pages=("receipts", "forms"), rounds=1)
def perfect_maps(data: Data) -> Iterator[Row]:
    """Text that comes back out of drawn target maps, by the published rule for boxes and by the exact one."""
    for unit, folder in (("receipts", data.receipts), ("forms", data.forms)):
        caption = f"Boxes of perfect maps of {unit}: recall at IoU 0.5 / at 0.7 / mean IoU"
        for size, shrink_ratio in product((640, 960), (0.4, 0.6)):
            pages = list(drawn_pages(folder, size, shrink_ratio))
            for use_polygon, shape in ((True, "polygons"), (False, "rectangles")):
                cells: dict[str, Figure | str] = {"shrink": Figure(shrink_ratio, digits=1), "shape": shape}
                for ratio in (1.5, "exact"):
                    settings = {"use_polygon": use_polygon, "min_size": 2, "shrink_ratio": shrink_ratio}
                    boxes = BoxesFromMap(unclip_ratio=ratio, **settings)
                    found = np.concatenate([best_overlaps(boxes(drawn).polygons, truth) for drawn, truth in pages])
                    shown = f"{(found > 0.5).mean():.3f} / {(found > 0.7).mean():.3f} / {found.mean():.3f}"
                    cells[f"unclip {ratio}"] = shown
                yield Row(str(size), cells, caption)


def drawn_pages(folder: Path, size: int, shrink_ratio: float) -> Iterator[tuple[NDArray[np.float32], Polygons]]:
    """The target map of each training page, and its polygons in pixels of the map."""
    dataset = OCRDataset(*split_paths(folder, "train"), DBTransforms([]))
    targets, letterbox = Targets(shrink_ratio=shrink_ratio), Letterbox(size)
    for index in range(len(dataset)):
        polygons = letterbox(dataset.decode.measure(dataset.source.read(index))).polygons
        yield targets.draw(polygons, size, size).prob_map, polygons


def best_overlaps(found: Polygons, truth: Polygons) -> NDArray[np.float64]:
    """For each word that counts, the IoU with the box that covers it best."""
    boxes = [shapely.Polygon(polygon).buffer(0) for polygon in found]
    tree, best = shapely.STRtree(boxes), []
    for polygon in truth.select(~truth.ignore):
        word = shapely.Polygon(polygon).buffer(0)
        near = [boxes[index] for index in tree.query(word)]
        best.append(max((word.intersection(box).area / word.union(box).area for box in near), default=0.0))
    return np.array(best)
