"""Epochs as the tables compare them: GlyphFeed's datasets and the reference's, on the same pages in the same shape."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch.utils.data import DataLoader

from benchmarks.harness import ROOT
from benchmarks.reference import Passes, ReferenceDataset, random_transform, reference_loader
from ocr.datasets import OCRDataset
from ocr.datasets.build import make
from ocr.loader.order import EpochBatches

SIZE, BATCH, WORKERS = 640, 16, 2
FORMS = {"float": "host", "uint8": "device"}
"""How images leave the dataset, and the setting of `normalize` for it."""
Batch = dict[str, Any]
Consumer = Callable[[Batch], object]


def split_paths(folder: Path, split: str) -> tuple[Path, Path]:
    """Images and annotation of a split."""
    return folder / "images" / split, folder / "jsons" / f"{split}.json"


def pages(folder: Path, split: str = "val", form: str = "uint8", shape: str = "square", **settings: Any) -> OCRDataset:
    """Pages with the transforms of configs/transforms/base.yaml: those of training for `train`.

    Squares, because the reference knows nothing else: both make the same pixels.
    """
    config = OmegaConf.create({"transforms": OmegaConf.load(ROOT / "configs/transforms/base.yaml")})
    config.transforms.merge_with({"size": SIZE, "normalize": FORMS[form], "letterbox": {"shape": shape}})
    transform = make(config.transforms[f"{split}_transform"], f"transforms.{split}_transform")
    return OCRDataset(*split_paths(folder, split), transform, use_stored_maps=False, **settings)


def reference(folder: Path, workers: int = WORKERS, *, keep_items: bool = False, **settings: Any) -> DataLoader[Batch]:
    """Validation batches of the reference."""
    dataset = ReferenceDataset(*split_paths(folder, "val"), SIZE, keep_items=keep_items)
    return reference_loader(dataset, workers, batch_size=BATCH, **settings)


def reference_training(folder: Path, workers: int = WORKERS, *, drop_last: bool = True, **settings: Any) -> Passes:
    """Training batches of the reference; every pass is the next epoch."""
    dataset = ReferenceDataset(*split_paths(folder, "train"), transform=random_transform(SIZE))
    batches = EpochBatches(len(dataset), min(BATCH, len(dataset)), shuffle=True, drop_last=drop_last)
    return Passes(reference_loader(dataset, workers, batch_sampler=batches, **settings), batches)


class Transfer:
    """Copies all tensors of a batch into existing memory, like a transfer to a device."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def __call__(self, batch: Batch) -> int:
        """Bytes that were copied."""
        copied = 0
        for name, tensor in batch.items():
            if isinstance(tensor, torch.Tensor):
                buffer = self._buffers.get((name, tensor.dtype))
                if buffer is None or buffer.shape[1:] != tensor.shape[1:] or len(buffer) < len(tensor):
                    # Written once now, because the system provides memory only when it is written.
                    buffer = self._buffers[name, tensor.dtype] = torch.ones_like(tensor)
                buffer[: len(tensor)].copy_(tensor)
                copied += tensor.nbytes
        return copied


def epoch_seconds(batches: Iterable[Any], consume: Consumer | None = None) -> float:
    """One pass; without a consumer, batches are only handed out."""
    start = time.perf_counter()
    for batch in batches:
        if consume is not None:
            consume(batch)
    return time.perf_counter() - start


def quick_epoch(batches: Iterable[Any], consume: Consumer | None = None, epochs: int = 4) -> float:
    """The fastest of a few very short epochs."""
    return min(epoch_seconds(batches, consume) for _ in range(epochs))


def touch_memory(size: int) -> None:
    """Have the machine provide memory, and give it back for what is measured next.

    A virtual machine gets memory that was not in use for a few seconds from its host again, at a tenth of the speed.
    """
    np.ones(size, dtype=np.uint8)


def drop_files(folder: Path) -> None:
    """Leave nothing of the files of a folder in memory; pages that are still mapped only root can drop."""
    gc.collect()
    for path in filter(Path.is_file, folder.rglob("*")):
        drop_file(path)
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


def drop_file(file: Path) -> None:
    """Leave nothing of a file in memory."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak_bytes() -> int:
    """The most memory that this program had at a time; getrusage also counts the process that started it."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))
