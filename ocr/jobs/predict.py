"""Predict: the boxes on every image of a folder as JSON, CSV and drawn pages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from ocr.atomic import replacing
from ocr.csv_cells import plain_cell
from ocr.datasets.base import OCRDataset
from ocr.datasets.build import make
from ocr.datasets.transforms import DBTransforms
from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxPool, Detections
from ocr.jobs.run import run_job
from ocr.jobs.train import trained_module
from ocr.loader.loader import Loader
from ocr.pipeline.batch import Batch
from ocr.training.callbacks.drawings import draw_page, write_picture


def predict(config: DictConfig, console: Console) -> Path:
    """Write `predictions.json`, `predictions.csv` and `drawn/<name>` into `out`."""
    if config.images is None:
        raise ConfigError("images is not set. Set it to a folder of images: images=FOLDER")
    module = trained_module(config).eval()
    fabric = lightning.Fabric(accelerator=config.trainer.accelerator, devices=1, precision=config.trainer.precision)
    model = fabric.setup_module(module.model)
    transform = make(config.transforms.val_transform, "transforms.val_transform")
    dataset = OCRDataset(
        config.images, None, transform, image_loading_config=config.decode, on_bad_sample=config.on_bad_sample
    )
    if config.get("use_dali"):
        console.print("use_dali=true: images are read once, by the default loader", highlight=False)
    found: dict[str, tuple[Batch, int, Detections]] = {}
    waiting: list[Batch] = []
    with BoxPool(module.boxes) as pool, torch.inference_mode():
        for batch in track(_batches(config, dataset, fabric.device), "predicting", console=console, transient=True):
            if batch is None:
                continue
            images = module.normalization.on_device(batch["images"])
            pool.submit(model(images).prob_map, batch["inverse_matrix"], batch["shape"])
            # Without the tensors: pages wait here until their boxes are found.
            waiting.append({name: value for name, value in batch.items() if not isinstance(value, torch.Tensor)})
            _collect(found, waiting, pool, keep=1)
        _collect(found, waiting, pool, keep=0)
    out = Path(config.out)
    _write(out, found, config.draw, dataset)
    _print_summary(out, [detections for *_, detections in found.values()], dataset, console)
    return out


def _batches(config: DictConfig, dataset: OCRDataset, device: torch.device) -> Loader:
    return Loader(
        dataset,
        config.dataloaders.val_dataloader.batch_size,
        config.dataloaders.val_dataloader.num_workers,
        config.data.engine,
        batches_ahead=config.data.batches_ahead,
        device=device,
    )


def _print_summary(out: Path, found: list[Detections], dataset: OCRDataset, console: Console) -> None:
    boxes = sum(len(detections) for detections in found)
    console.print(f"{boxes} boxes on {len(found)} pages: {escape(str(out))}", highlight=False)
    for what, count in (
        ("pages skipped", len(dataset.ledger.files("skipped"))),
        ("boxes over max_candidates", sum(detections.left_out for detections in found)),
    ):
        if count:
            console.print(f"[yellow]{count} {what}")


def _collect(found: dict[str, Any], waiting: list[Batch], pool: BoxPool, keep: int) -> None:
    for pages in pool.drain(keep):
        batch = waiting.pop(0)
        for page, detections in enumerate(pages):
            found[batch["image_filename"][page]] = (batch, page, detections)


def _write(out: Path, found: dict[str, tuple[Batch, int, Detections]], draw: bool, dataset: OCRDataset) -> None:
    images: dict[str, Any] = {}
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(["image", "word", "score", "points"])
    for name, (batch, page, detections) in found.items():
        words = {}
        for number, (polygon, score) in enumerate(zip(detections.polygons, detections.scores, strict=True), 1):
            points = np.round(polygon.astype(np.float64), 2).tolist()
            words[f"{number:04d}"] = {"points": points, "score": round(float(score), 4)}
            rows.writerow(
                [plain_cell(name), f"{number:04d}", f"{score:.4f}", " ".join(f"{x:g},{y:g}" for x, y in points)]
            )
        width, height = batch["shape"][page]
        images[name] = {"img_w": width, "img_h": height, "words": words}
    with replacing(out / "predictions.json") as stream:
        stream.write(json.dumps({"images": images}).encode())
    with replacing(out / "predictions.csv") as stream:
        stream.write(table.getvalue().encode())
    if draw:
        _draw(out / "drawn", found, dataset)


def _draw(folder: Path, found: dict[str, tuple[Batch, int, Detections]], dataset: OCRDataset) -> None:
    upright = OCRDataset(dataset.source.folder, None, DBTransforms([]))
    indices = {name: index for index, name in enumerate(upright.source.names)}
    for name, (*_, detections) in track(found.items(), "drawing", transient=True):
        page = upright.page(indices[name]).image
        write_picture((folder / name).with_suffix(".jpg"), draw_page(page, detections))


def main() -> None:
    """`ocr predict`."""
    run_job("predict", predict)


if __name__ == "__main__":
    main()
