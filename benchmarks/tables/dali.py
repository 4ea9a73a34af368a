"""Epochs without a cache, side by side: the plain reference, the default loader, and NVIDIA DALI.

On a GPU, if there is one, every batch ends there, and DALI also runs the random stages there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Data, Figure, Place, Row, Target, benchmark, fastest, figure, interleave
from benchmarks.loaders import BATCH, SIZE, WORKERS, epoch_seconds, pages, reference, reference_training
from ocr.dali.graph import ocr_pipeline
from ocr.datasets import DALIDataLoader, OCRDataset
from ocr.loader import Loader

REFERENCE, DEFAULT, DALI, EXACT = "reference", "default loader", "DALI", "decode.scaled=off"
PIXELS = "Pixels of DALI against the default loader's, levels of 255"
MEAN = {"off": 0.2, "auto": 1.5}
"""By how much validation pages differ at most on average."""


@benchmark("dali", table=[Place("results#dali", r"^(ref|def|DALI)"), Place("dali#pixels", caption=PIXELS)], rounds=4)
def dali(data: Data) -> Iterator[Row]:
    """Epochs with DALI, the default loader and the plain pipeline; and how far DALI's pixels are from ours."""
    device = "gpu" if torch.cuda.is_available() else "cpu"
    for split, kind in (("val", "validation"), ("train", "training")):
        best = fastest(interleave(contenders(data, split, device), data.rounds))
        count = len(pages(data.receipts, split))
        caption = f"{kind}: {count} pages, {SIZE}x{SIZE}, float, {WORKERS} workers, DALI on {device}"
        for name, seconds in best.items():
            # On a CPU the default loader should not be slower than DALI; on a GPU DALI should be worth it.
            wanted = best[DALI if device == "cpu" else DEFAULT]
            least = best[REFERENCE] / wanted if name == (DEFAULT if device == "cpu" else DALI) else None
            times = figure(best[REFERENCE] / seconds, " x", at_least=least)
            yield Row(name, {"pages/s": Figure(count / seconds), "times the reference": times}, caption)
    for scaled, bound in MEAN.items():
        mean, worst, largest = differences(data, scaled, device)
        cells = {"mean": Target(mean, at_most=bound), "worst page": Figure(worst), "largest": Figure(largest)}
        yield Row(f"decode.scaled={scaled}", cells, PIXELS)


def contenders(data: Data, split: str, device: str) -> dict[str, Callable[[], float]]:
    """The reference first, so that its workers are forked before threads get busy."""
    train, pinned = split == "train", {"pin_memory": device == "gpu"}
    plain = (
        reference_training(data.receipts, drop_last=False, **pinned) if train else reference(data.receipts, **pinned)
    )
    every, exact = dataset(data, split), dataset(data, split, "off")
    loaders: dict[str, Iterable[Any]] = {
        REFERENCE: plain,
        DEFAULT: default(every, device),
        f"{DEFAULT}, {EXACT}": default(exact, device),
        DALI: through_dali(every, device),
        f"{DALI}, {EXACT}": through_dali(exact, device),
    }
    if train and device == "cpu":
        loaders[f"{DALI}, random stages in DALI"] = through_dali(every, device, suffix="dali")
    return {name: partial(seconds, loader, device) for name, loader in loaders.items()}


def dataset(data: Data, split: str, scaled: str = "auto") -> OCRDataset:
    """Float pages without a cache."""
    return pages(data.receipts, split, "float", image_loading_config={"scaled": scaled})


def default(made: OCRDataset, device: str) -> Loader:
    return Loader(made, BATCH, WORKERS, device="cuda" if device == "gpu" else None)


def through_dali(made: OCRDataset, device: str, **settings: Any) -> DALIDataLoader:
    pipeline = ocr_pipeline(made, BATCH, WORKERS, device=device, **settings)
    return DALIDataLoader(pipeline, len(made), BATCH, device="cuda" if device == "gpu" else None)


def seconds(batches: Iterable[Any], device: str) -> float:
    """An epoch; on a GPU with the transfer of what is not there yet."""
    if device == "cpu":
        return epoch_seconds(batches)

    def bring(batch: dict[str, Any]) -> None:
        for value in batch.values():
            if isinstance(value, torch.Tensor):
                value.to("cuda", non_blocking=True)
        torch.cuda.synchronize()

    return epoch_seconds(batches, bring)


def differences(data: Data, scaled: str, device: str) -> tuple[float, float, float]:
    """How far validation pages are apart: on average, on the worst page, and the largest; padding does not count."""
    made = dataset(data, "val", scaled)
    means, largest = [], 0.0
    std = torch.tensor(made.transform.normalization.std).view(3, 1, 1) * 255
    for batch, other in zip(default(made, device), through_dali(made, device), strict=True):
        for page, image in enumerate(batch["images"]):
            gap = ((image - other["images"][page]).abs().cpu() * std).round(decimals=2)
            width, height = batch["shape"][page]
            means.append(float(gap.mean()) * max(width, height) ** 2 / (width * height))
            largest = max(largest, float(gap.max()))
    return float(np.mean(means)), max(means), largest
