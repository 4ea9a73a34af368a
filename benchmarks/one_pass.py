"""Warm training epochs: one pass over the pixels of a page, against its stages one by one as OpenCV runs them.

python benchmarks/one_pass.py --data DIR        # DIR/images/train, DIR/jsons/train.json

Both read the same cache and draw the same parameters with `configs/transforms/base.yaml`; they take turns, and the
fastest round of each counts. Then their pages are compared, pixel by pixel.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.epoch_process import FORMS, Batch, epoch_seconds, give_same_chances
from benchmarks.epochs import Course, in_seconds
from benchmarks.measure import Goal, console
from ocr.datasets import OCRDataset
from ocr.loader import Loader
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import RandomStage
from ocr.pipeline.suffix import ColourJitter, Warp

COMPARED_PAGES = 64


class OneByOne(RandomStage):
    """A stage of ours as it was before one pass: OpenCV makes a new page."""

    def __init__(self, stage: Warp | ColourJitter) -> None:
        self.stage, self.moves_geometry = stage, stage.moves_geometry

    def draw(self, rng: np.random.Generator, page: Any) -> Any:
        return self.stage.draw(rng, page)

    def apply(self, sample: Sample, parameters: Any) -> Sample:
        image = self.stage.change(sample.image, parameters)
        return replace(self.stage.follow(sample, parameters), image=image)


def one_by_one(loader: Loader) -> Loader:
    """The same batches, without passes."""
    transform = loader.dataset.transform
    transform.random = tuple(
        OneByOne(stage) if isinstance(stage, Warp | ColourJitter) else stage for stage in transform.random
    )
    return loader


def compare_pages(ours: OCRDataset, reference: OCRDataset) -> str:
    """How far pages differ, in gray levels, before blur and JPEG noise, which spread every difference."""
    differences = []
    for dataset in (ours, reference):
        dataset.transform.random = tuple(
            stage for stage in dataset.transform.random if isinstance(stage, Warp | ColourJitter | OneByOne)
        )
    for index in range(min(COMPARED_PAGES, len(ours))):
        pages = (np.int16(dataset.sample(index).image) for dataset in (ours, reference))
        differences.append(np.bincount(np.abs(np.subtract(*pages)).ravel(), minlength=256))
    counts = np.sum(differences, axis=0)
    apart = ", ".join(f"{count} by {levels}" for levels, count in enumerate(counts.tolist()) if count and levels)
    mean = counts @ np.arange(256) / counts.sum()
    return f"values that differ in gray levels: {apart} of {counts.sum()}; {mean:.4f} on average"


def cpu_seconds(batches: Iterable[Batch]) -> float:
    """One pass: the time of all its threads on a core, which does not count what other processes take."""
    start = time.process_time()
    for _ in batches:
        pass
    return time.process_time() - start


def report(course: Course, rounds: int) -> None:
    """Measure, and show it."""
    loaders = {}
    for form in FORMS:
        loaders[f"{form}, one by one"] = one_by_one(course.training(form))
        loaders[f"{form}, one pass"] = course.training(form)
    contenders: dict[str, Callable[[], float]] = {}
    for name, batches in loaders.items():
        contenders |= {name: partial(epoch_seconds, batches), f"{name}, CPU": partial(cpu_seconds, batches)}
    best = {name: min(seconds) for name, seconds in measure.time_rounds(contenders, rounds).items()}

    def faster(what: str, suffix: str, target: float | None) -> Goal:
        before, now = ([best[f"{form}, {how}{suffix}"] for form in FORMS] for how in ("one by one", "one pass"))
        ratios = [slow / fast for slow, fast in zip(before, now, strict=True)]
        return Goal(what, "\n".join(map(in_seconds, before)), list(map(in_seconds, now)), ratios, target)

    measure.show_goals(
        f"One pass over the pixels against stages one by one: {len(loaders['uint8, one pass'].dataset)} pages, "
        f"{course.size}x{course.size}, {course.workers} workers, fastest of {rounds} rounds",
        list(FORMS),
        [faster("warm training epoch", "", 1.5), faster("- its time on the cores", ", CPU", None)],
    )
    console.print(compare_pages(loaders["uint8, one pass"].dataset, loaders["uint8, one by one"].dataset))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_data_options(parser, rounds=6)
    parser.add_argument("--size", type=int, default=640, help="side of the letterboxed page (default: 640)")
    parser.add_argument("--batch-size", type=int, default=16, help="pages per batch (default: 16)")
    parser.add_argument("--workers", type=int, default=2, help="threads (default: 2)")
    options = parser.parse_args()
    give_same_chances()
    data = measure.data_or_synthetic(options.data, pages=1, train=32)
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as caches:
        settings = options.size, options.batch_size, options.workers
        report(Course(data, "val", "train", *settings, Path(caches)), options.rounds)
    return 0


if __name__ == "__main__":
    measure.exit_with(main)
