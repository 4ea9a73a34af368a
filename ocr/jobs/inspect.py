"""Inspect: every error of a checkpoint with its cause, and what would help."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import lightning
import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track
from rich.text import Text

from ocr.datasets.build import make
from ocr.datasets.data_module import OCRDataModule
from ocr.datasets.page_dataset import PageDataset
from ocr.evaluation.boxes import BoxesFromMap
from ocr.inspect.atlas import Picture, take_picture, write_atlas
from ocr.inspect.compare import Comparison, show_comparison
from ocr.inspect.inspection import Inspection
from ocr.inspect.page import PageInput
from ocr.inspect.result import PageResult, evaluate_page
from ocr.inspect.tables import show, write_comparison, write_tables
from ocr.jobs.run import config_for, run_job
from ocr.jobs.scored_split import check_annotated, describe_split
from ocr.jobs.stored_settings import name_of_detector
from ocr.jobs.train import trained_module
from ocr.pipeline.targets import Targets
from ocr.training.callbacks.data_report import describe
from ocr.training.callbacks.drawings import to_pixels
from ocr.training.module import OCRPLModule, truth_on_page

Evaluated = tuple[PageResult, Picture | None]
WAITING = 8
"""Pages that can wait to be evaluated: each holds its image and its map."""


def inspect(config: DictConfig, console: Console) -> Inspection:
    """Inspect a checkpoint on `datasets.test_dataset`, show what was found, and write it into `out`."""
    out = Path(str(config.out))  # A folder may be named 2024.
    (inspection, pictures), comparison = inspect_pages(config, console), None
    if config.compare is not None:
        baseline, (inspection, pictures) = inspection, inspect_pages(config_for(str(config.compare), console), console)
        comparison = Comparison(baseline, inspection)
    show(inspection, console)
    written = write_tables(inspection, out)
    if comparison is not None:
        show_comparison(comparison, console)
        written += write_comparison(comparison, out)
    if config.atlas:
        written.append(out / "atlas.html")
        write_atlas(inspection, pictures, written[-1], comparison)
    for file in written:
        console.print(Text(f"written: {file}"), soft_wrap=True)
    return inspection


def inspect_pages(config: DictConfig, console: Console) -> tuple[Inspection, dict[str, Picture]]:
    """Run the model of a config over the pages, and evaluate each; pictures are by the names of pages."""
    module = trained_module(config).eval()
    data = OCRDataModule(config)
    dataset = data.dataset("test")
    check_annotated(dataset, "test")
    console.print(
        Text(describe_split(config, len(dataset) if isinstance(dataset, PageDataset) else None)), soft_wrap=True
    )
    targets = make(config.targets, "targets")
    learnt = targets if isinstance(targets, Targets) else None
    total = len(dataset) if isinstance(dataset, PageDataset) else None
    evaluated = _evaluated(config, module, data, learnt)
    shown = track(evaluated, "evaluating", total, console=console, transient=True)
    # Pages of similar shape came together.
    results = sorted(shown, key=lambda result: result[0].name)
    console.print(Text(describe(dataset, dataset.ledger.totals())), soft_wrap=True)
    size = module.settings.page_size if module.settings is not None else None
    pages = [result for result, _ in results]
    pictures = {result.name: picture for result, picture in results if picture is not None}
    names = name_of_detector(config), str(dataset.source.location)
    return Inspection(*names, pages, module.boxes, size), pictures


def _evaluated(
    config: DictConfig, module: OCRPLModule, data: OCRDataModule, targets: Targets | None
) -> Iterator[Evaluated]:
    """Pages are evaluated in threads while the model works on the next ones."""
    side = config.picture_side if config.atlas else None
    waiting: deque[Future[Evaluated]] = deque()
    with ThreadPoolExecutor(2, thread_name_prefix="evaluate") as threads:
        try:
            for page in _predicted(config, module, data):
                waiting.append(threads.submit(_evaluate, page, module.boxes, targets, side))
                while len(waiting) > WAITING:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _evaluate(page: PageInput, boxes: BoxesFromMap, targets: Targets | None, side: int | None) -> Evaluated:
    return evaluate_page(page, boxes, targets), None if side is None else take_picture(page, side)


def _predicted(config: DictConfig, module: OCRPLModule, data: OCRDataModule) -> Iterator[PageInput]:
    """Every page with its map."""
    fabric = lightning.Fabric(accelerator=config.trainer.accelerator, devices=1, precision=config.trainer.precision)
    model = fabric.setup_module(module.model)
    for batch in data.loader("test"):
        if batch is None:
            continue
        pixels = _pixels(batch["images"], module)
        with torch.inference_mode():
            images = module.normalization.on_device(batch["images"], fabric.device)
            maps = model(images, with_threshold=False).prob_map.float().cpu().numpy()[:, 0]
        for page, prob_map in enumerate(maps):
            yield PageInput(
                batch["image_filename"][page],
                pixels[page],
                prob_map,
                np.asarray(batch["inverse_matrix"][page], dtype=np.float64),
                batch["shape"][page],
                truth_on_page(batch, page),
            )


def _pixels(images: torch.Tensor, module: OCRPLModule) -> NDArray[np.uint8]:
    """A copy, (B, H, W, 3): the loader uses the memory of a batch again."""
    if images.is_floating_point():
        return to_pixels(images, module)
    return np.array(images.permute(0, 2, 3, 1).cpu().numpy(), order="C")


def main() -> None:
    """`glyphfeed inspect`."""
    run_job("inspect", inspect, "interrupted: nothing was written")


if __name__ == "__main__":
    main()
