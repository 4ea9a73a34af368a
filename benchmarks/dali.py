"""Epochs without a cache, side by side: the plain reference, the default loader, and NVIDIA DALI.

python benchmarks/dali.py --data DIR                  # DALI on the CPU, or on a GPU if there is one
python benchmarks/dali.py --data DIR --device gpu

All take turns in one run, with the same pages, number of workers and normalised float images; the fastest round of each
counts. On a GPU every batch ends there, and DALI also runs the random stages there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.epoch_process import epoch_seconds, give_same_chances, split_paths
from benchmarks.measure import console
from benchmarks.reference import ReferenceDataset, random_transform, reference_loader
from ocr.dali.graph import ocr_pipeline
from ocr.datasets import DALIDataLoader, OCRDataset
from ocr.datasets.build import make
from ocr.loader import Loader

TRANSFORMS = Path(__file__).resolve().parent.parent / "configs" / "transforms" / "base.yaml"
REFERENCE, DEFAULT, DALI = "reference", "default loader", "DALI"
EXACT = "decode.scaled=off"


@dataclass(frozen=True)
class Course:
    """The pages, and how they are read."""

    data: Path
    size: int
    batch_size: int
    workers: int
    device: str

    @property
    def target(self) -> str | None:
        """The device that batches are moved to, if they are made on another one."""
        return "cuda" if self.device == "gpu" else None

    def dataset(self, split: str, train: bool, scaled: str = "auto") -> OCRDataset:
        """Pages with the transforms of the config, and no cache."""
        config = OmegaConf.create({"transforms": OmegaConf.load(TRANSFORMS)})
        config.transforms.size, config.transforms.normalize = self.size, "host"
        config.transforms.letterbox.shape = "square"
        name = "train_transform" if train else "val_transform"
        transform = make(config.transforms[name], f"transforms.{name}")
        decode = {"scaled": scaled}
        return OCRDataset(*split_paths(self.data, split), transform, use_stored_maps=False, image_loading_config=decode)

    def reference(self, split: str, train: bool) -> Callable[[], float]:
        """An epoch of Pillow, Albumentations and NumPy maps in torch's DataLoader."""
        transform = random_transform(self.size) if train else None
        dataset = ReferenceDataset(*split_paths(self.data, split), self.size, transform)
        loader = reference_loader(dataset, self.workers, batch_size=self.batch_size, pin_memory=self.target is not None)
        return lambda: self.seconds(loader)

    def default(self, dataset: OCRDataset) -> Loader:
        """Our own loader."""
        return Loader(dataset, self.batch_size, self.workers, device=self.target)

    def dali(self, dataset: OCRDataset, **settings: Any) -> DALIDataLoader:
        """The same dataset through DALI."""
        pipeline = ocr_pipeline(dataset, self.batch_size, self.workers, device=self.device, **settings)
        return DALIDataLoader(pipeline, len(dataset), self.batch_size, device=self.target)

    def seconds(self, batches: Iterable[Any]) -> float:
        """An epoch; batches that are on another device are moved."""

        def bring(batch: dict[str, Any]) -> None:
            for value in batch.values():
                if isinstance(value, torch.Tensor):
                    value.to(self.target, non_blocking=True)

        seconds = epoch_seconds(batches, bring if self.target else None)
        if self.target:
            torch.cuda.synchronize()
        return seconds


def contenders(course: Course, split: str, train: bool) -> dict[str, Callable[[], float]]:
    """The reference first, so that its workers are forked before threads get busy."""
    runs = {REFERENCE: course.reference(split, train)}
    loaders: dict[str, Loader] = {
        DEFAULT: course.default(course.dataset(split, train)),
        f"{DEFAULT}, {EXACT}": course.default(course.dataset(split, train, "off")),
        DALI: course.dali(course.dataset(split, train)),
        f"{DALI}, {EXACT}": course.dali(course.dataset(split, train, "off")),
    }
    if train and course.device == "cpu":
        loaders[f"{DALI}, random stages in DALI"] = course.dali(course.dataset(split, train), suffix="dali")
    if course.device == "gpu":
        loaders[f"{DALI}, maps on the GPU"] = course.dali(course.dataset(split, train), maps="device")
    return runs | {name: lambda loader=loader: course.seconds(loader) for name, loader in loaders.items()}  # type: ignore[misc]


def differences(course: Course, split: str, scaled: str) -> dict[str, float]:
    """How far DALI's validation pages are from the default loader's, in levels of 255; padding does not count."""
    means, largest = [], 0.0
    made = [course.default(course.dataset(split, False, scaled)), course.dali(course.dataset(split, False, scaled))]
    std = torch.tensor(made[0].dataset.transform.normalization.std).view(3, 1, 1) * 255
    for batch, other in zip(*made, strict=True):
        for page, image in enumerate(batch["images"]):
            gap = ((image - other["images"][page]).abs().cpu() * std).round(decimals=2)
            width, height = batch["shape"][page]
            means.append(float(gap.mean()) * max(width, height) ** 2 / (width * height))
            largest = max(largest, float(gap.max()))
    return {"mean": float(np.mean(means)), "worst page": max(means), "largest": largest}


def report(course: Course, splits: dict[str, str], rounds: int, json_file: Path | None) -> None:
    """Measure, and show it."""
    figures: dict[str, Any] = {"device": course.device, "rounds": {}}
    for kind, split in splits.items():
        train = kind == "training"
        told = measure.time_rounds(contenders(course, split, train), rounds)
        figures["rounds"][kind] = told
        pages = len(course.dataset(split, train))
        title = f"{kind}: {pages} pages, {course.size}x{course.size}, {course.workers} workers, DALI on {course.device}"
        measure.show(title, {name: min(seconds) for name, seconds in told.items()}, pages, REFERENCE)
    title = "Pixels of DALI against the default loader's, levels of 255"
    table = Table("", "mean", "worst page", "largest", title=title, title_justify="left")
    for scaled in ("off", "auto"):
        found = figures[f"levels, decode.scaled={scaled}"] = differences(course, splits["validation"], scaled)
        mean, worst, largest = found.values()
        table.add_row(f"decode.scaled={scaled}", f"{mean:.2f}", f"{worst:.2f}", f"{largest:.0f}")
    console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_data_options(parser, rounds=4)
    parser.add_argument("--train-split", default="train", help="split to train on (default: train)")
    for name, value, what in (
        ("size", 640, "side of the letterboxed page"),
        ("batch-size", 16, "pages per batch"),
        ("workers", 2, "threads, or processes of the reference"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} (default: {value})")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="of DALI (default: auto)")
    parser.add_argument("--json", type=Path, default=None, help="file to write all figures to")
    options = parser.parse_args()
    give_same_chances()
    data = measure.data_or_synthetic(options.data, train=32)
    found = "gpu" if torch.cuda.is_available() else "cpu"
    device = found if options.device == "auto" else options.device
    course = Course(data, options.size, options.batch_size, options.workers, device)
    report(course, {"validation": options.split, "training": options.train_split}, options.rounds, options.json)
    return 0


if __name__ == "__main__":
    measure.exit_with(main)
