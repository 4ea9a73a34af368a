"""Pages that keep their shape against squares: padding, validation, training and memory, in turns.

python benchmarks/shapes.py --data DIR                                   # DIR/images/train, DIR/jsons/train.json, ...
python benchmarks/shapes.py --data DIR --checkpoint best.ckpt            # with H-mean and boxes of both
python benchmarks/shapes.py --data DIR --checkpoint best.ckpt experiment=receipts   # settings as for `ocr train`

Training runs the transforms of the settings on the training pages, forward, backward and the optimizer's step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from omegaconf import DictConfig
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.deploy_worker import peak_bytes
from benchmarks.epoch_process import give_same_chances
from benchmarks.measure import Goal, console
from ocr.datasets.data_module import OCRDataModule
from ocr.evaluation.boxes import BoxPool, Detections
from ocr.evaluation.hmean import HmeanIoU
from ocr.jobs.compose import compose_training
from ocr.jobs.train import build_module, trained_module
from ocr.loader.loader import Loader
from ocr.training.module import OCRPLModule, truth_on_page

SHAPES = ("square", "page")
PADDING, SPEED, HMEAN, PIXEL = 0.08, 1.6, 0.002, 1.0
"""Targets: padding at most, pages per second at least, difference of H-means and of boxes at most."""


class Found(NamedTuple):
    """What one validation found."""

    hmean: float
    pages: dict[str, tuple[Detections, float]]
    """Name of each page, its boxes, and the pixels of the model's page per pixel of the source page."""


def settings(options: argparse.Namespace, shape: str, folder: str) -> DictConfig:
    """The settings of one contender; both keep their caches in a folder of their own."""
    given = [f"dataset_base_path={options.data}", f"cache.folder={folder}", f"transforms.letterbox.shape={shape}"]
    config = compose_training([f"model={options.model}", f"transforms.size={options.size}", *given, *options.overrides])
    config.checkpoint_path = options.checkpoint
    for split in ("train", "val"):
        config.dataloaders[f"{split}_dataloader"].batch_size = options.batch_size
    return config


def padding_of(loader: Loader) -> tuple[float, set[tuple[int, int]], int]:
    """Share of the pixels of an epoch that are no page, the shapes of its batches, and how many pages it has."""
    dataset: Any = loader.dataset
    sizes = dataset.source
    pixels = pages = own = 0
    shapes = set()
    side = dataset.transform.needed_side
    for indices in loader.batch_sampler.batches(0, 0):
        height, width = getattr(indices, "shape", (side, side))
        shapes.add((height, width))
        for index in indices:
            page = np.array(sizes.size(index, 1 << 40))
            own += int(np.rint(page * (side / page.max())).prod())
        pixels += len(indices) * height * width
        pages += len(indices)
    return 1 - own / pixels, shapes, pages


def validate(module: OCRPLModule, loader: Loader) -> Found:
    """Score all pages: loading, model, boxes and scores."""
    metric, pages, waiting = HmeanIoU(), {}, []

    def score(pool: BoxPool, keep: int) -> None:
        for found in pool.drain(keep):
            batch = waiting.pop(0)
            for number, detections in enumerate(found):
                metric.update(detections.polygons, truth_on_page(batch, number))
                scale = float(np.linalg.inv(batch["inverse_matrix"][number])[0, 0])
                pages[batch["image_filename"][number]] = detections, scale

    with BoxPool(module.boxes) as pool, torch.inference_mode():
        for batch in _present(loader):
            maps = module.model(module.normalization.on_device(batch["images"]), with_threshold=False).prob_map
            pool.submit(maps, batch["inverse_matrix"], batch["shape"])
            waiting.append(batch)
            score(pool, keep=1)
        score(pool, keep=0)
    return Found(float(metric.compute()["hmean"]), pages)


def _present(loader: Loader) -> Iterator[Any]:
    return (batch for batch in loader if batch is not None)


def train(module: OCRPLModule, optimizer: torch.optim.Optimizer, loader: Loader) -> int:
    """One epoch of training steps; returns its pages."""
    pages = 0
    for batch in _present(loader):
        loss, _ = module.loss(module.model(module.normalization.on_device(batch["images"])), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pages += len(batch["images"])
    return pages


def box_distances(square: Found, page: Found) -> np.ndarray:
    """How far the sides of the same boxes are apart, in pixels of the model's page."""
    distances = []
    for name, (ours, scale) in page.pages.items():
        mine, theirs = ours.polygons.bounds, square.pages[name][0].polygons.bounds
        if not len(mine) or not len(theirs):
            continue
        apart = np.abs(mine[:, None] - theirs[None]).max(axis=2)
        distances += (apart.min(axis=1) * scale).tolist()
    return np.array(distances)


def step_memory(options: argparse.Namespace) -> dict[str, float]:
    """Peak megabytes that training steps add to a process of their own, for each shape."""
    found = {}
    for shape in SHAPES:
        command = [sys.executable, __file__, "--memory-of", shape, *sys.argv[1:]]
        found[shape] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    return found


def memory_of(options: argparse.Namespace) -> float:
    """Peak megabytes that the training steps of one epoch add to this process."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings(options, options.memory_of, folder)
        loader, module = OCRDataModule(config).loader("train"), make_module(config)
        optimizer = module.build_optimizer()
        batches = iter(loader)
        next(batches)
        before = peak_bytes()
        train(module, optimizer, loader)
        return (peak_bytes() - before) / 1e6


def make_module(config: DictConfig) -> OCRPLModule:
    """The checkpoint's module, or an untrained one."""
    return trained_module(config) if config.checkpoint_path else build_module(config)


def compare(options: argparse.Namespace, folder: str) -> list[Goal]:
    """All figures but memory."""
    configs = {shape: settings(options, shape, f"{folder}/{shape}") for shape in SHAPES}
    loaders = {
        (shape, split): OCRDataModule(config).loader(split)
        for shape, config in configs.items()
        for split in ("train", "val")
    }
    padding = {key: padding_of(loader) for key, loader in loaders.items()}
    show_padding(padding)
    module = make_module(configs["page"])
    found: dict[str, Found] = {}

    def validated(shape: str) -> float:
        start = time.perf_counter()
        found[shape] = validate(module.eval(), loaders[shape, "val"])
        return len(found[shape].pages) / (time.perf_counter() - start)

    optimizer = module.build_optimizer()

    def trained(shape: str) -> float:
        start = time.perf_counter()
        return train(module.train(), optimizer, loaders[shape, "train"]) / (time.perf_counter() - start)

    speeds = measure.time_rounds({shape: lambda shape=shape: validated(shape) for shape in SHAPES}, options.rounds)
    steps = measure.time_rounds({shape: lambda shape=shape: trained(shape) for shape in SHAPES}, options.rounds)
    best = [{shape: max(each[shape]) for shape in SHAPES} for each in (speeds, steps)]
    shown = [f"{each['page']:.2f} pages/s" for each in best]
    goals = [
        Goal("padding", "", [""] * 2, [padding["page", split][0] for split in ("train", "val")], PADDING, True, ""),
        Goal("shapes", "", [""] * 2, [len(padding["page", split][1]) for split in ("train", "val")], 8, True, ""),
        Goal("speed", "square", shown[::-1], [each["page"] / each["square"] for each in best[::-1]], SPEED),
    ]
    if options.checkpoint:
        show_boxes(found)
        difference = abs(found["page"].hmean - found["square"].hmean)
        goals.append(Goal("H-mean apart", f"{found['square'].hmean:.4f}", ["", ""], [0, difference], HMEAN, True, ""))
    return goals


def show_padding(padding: dict[tuple[str, str], tuple[float, set[tuple[int, int]], int]]) -> None:
    """One row per split and shape."""
    table = Table(title="pixels that reach the model", title_justify="left")
    for heading in ("split", "shape", "pages", "padding", "shapes of batches (height x width)"):
        table.add_column(heading)
    for (shape, split), (share, shapes, pages) in padding.items():
        listed = ", ".join(f"{height}x{width}" for height, width in sorted(shapes))
        table.add_row(split, shape, str(pages), f"{share:.1%}", listed)
    console.print(table)


def show_boxes(found: dict[str, Found]) -> None:
    """How far boxes are apart."""
    distances = box_distances(found["square"], found["page"])
    counts = [sum(len(page[0]) for page in found[shape].pages.values()) for shape in SHAPES]
    console.print(
        f"{counts[1]} boxes with shape=page, {counts[0]} with square; {np.mean(distances <= PIXEL):.2%} of them within "
        f"{PIXEL:g} pixel, median {np.median(distances):.3f}; H-mean {found['page'].hmean:.4f} and "
        f"{found['square'].hmean:.4f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--checkpoint", default=None, help="a trained detector, for H-mean and boxes")
    parser.add_argument("--model", default="lite", help="preset of configs/model/ (default: lite)")
    parser.add_argument("--size", type=int, default=640, help="longest side of a page (default: 640)")
    parser.add_argument("--batch-size", type=int, default=8, help="pages per batch (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each contender (default: 3)")
    parser.add_argument("--json", type=Path, default=None, help="write the figures into a file, too")
    parser.add_argument("--memory-of", choices=SHAPES, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="settings of `ocr train`")
    options = parser.parse_args()
    if options.memory_of:
        print(memory_of(options))
        return 0
    give_same_chances()
    options.data = measure.data_or_synthetic(options.data, train=24)
    with tempfile.TemporaryDirectory() as folder:
        goals = compare(options, folder)
    memory = step_memory(options)
    square, page = memory["square"], memory["page"]
    # Steps on tiny pages fit into memory that the process has anyway.
    ratio = f" ({page / square:.2f} x)" if square else ""
    console.print(f"peak memory of training steps: {square:.0f} MB square, {page:.0f} MB page{ratio}")
    measure.show_goals("pages that keep their shape, against squares", ["training", "validation"], goals)
    if options.json:
        options.json.write_text(json.dumps({goal.name: list(goal.figures) for goal in goals}))
    return 0


if __name__ == "__main__":
    measure.exit_with(main)
