"""The pages of one checkout in a process of its own, for benchmarks/tables/epochs.py: public names of `ocr` alone.

It reads a line of JSON for what it has, then a name per line, and answers each with a line that begins with a mark:

printf '{"data": "DIR", "cache": "OUT"}\\nuncached\\n' | PYTHONPATH=CHECKOUT python benchmarks/epochs_worker.py
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import torch

from ocr import DBTransforms, Loader, OCRDataset
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import (
    ColourJitter,
    JpegNoise,
    RandomBlur,
    RandomFlip,
    RandomRotate,
    RandomScale,
    TextAwareCrop,
)

MARK = "\x1e"
SIZE, BATCH, WORKERS = 640, 16, 2
ALONE, STEP_SECONDS = 54, 0.02
"""Pages that one thread makes, and a consumer's step."""


class Checkout:
    """Its datasets; the methods without arguments are what can be measured, in seconds or bytes."""

    def __init__(self, data: str, cache: str, settings: dict[str, Any] | None = None) -> None:
        """`settings` are those of a dataset with a cache, for a checkout with other defaults."""
        self.data, self.folder, self.settings = Path(data), Path(cache), settings or {}
        self.buffers: dict[str, torch.Tensor] = {}
        self.loaders: dict[str, Any] = {}
        self.bytes = 0.0
        # Kernels are loaded, and the memory of a batch is there, before any clock.
        self.epoch(self.once("uncached", lambda: self.loader(self.pages("val"))))

    def uncached(self) -> float:
        return self.epoch(self.loaders["uncached"])

    def filling(self) -> float:
        folder = Path(tempfile.mkdtemp(dir=self.folder.parent))
        try:
            loader = self.loader(self.pages("val", folder))
            seconds = self.epoch(loader)
            self.bytes = sum(file.stat().st_blocks * 512 for file in folder.rglob("*")) / len(loader.dataset)
            return seconds
        finally:
            shutil.rmtree(folder)

    def kept(self) -> float:
        """Bytes of a page on the disk, of the cache that was filled last."""
        return self.bytes

    def warm(self) -> float:
        loader = self.once("warm", lambda: self.filled(self.loader(self.pages("val", self.folder))))
        return min(self.epoch(loader) for _ in range(4))

    def training(self) -> float:
        pages = lambda: self.pages("train", self.folder, is_random=True)  # noqa: E731
        return self.epoch(self.once("training", lambda: self.filled(self.loader(pages(), shuffle=True))))

    def second(self) -> float:
        """Opening, and the first epoch: of a new process, this is its second run."""
        start = time.perf_counter()
        self.epoch(self.loader(self.pages("train", self.folder)))
        return time.perf_counter() - start

    def waiting(self) -> float:
        """Percent of its time that a consumer waits."""
        return waiting_percent(self.once("warm", lambda: self.filled(self.loader(self.pages("val", self.folder)))))

    def alone(self) -> float:
        """A page without a cache, in one thread."""
        dataset = self.once("alone", lambda: self.pages("val", normalize="host"))
        start = time.perf_counter()
        for index in range(min(ALONE, len(dataset))):
            _ = dataset[index]
        return (time.perf_counter() - start) / min(ALONE, len(dataset))

    def pages(
        self, split: str, cache: str | Path | None = None, *, is_random: bool = False, normalize: str = "device"
    ) -> Any:
        """A split, with the augmentation of the configs if it is random."""
        geometry = [TextAwareCrop(), RandomFlip(), RandomRotate(), RandomScale()]
        pixels = [ColourJitter(), RandomBlur(), JpegNoise()]
        stages = [Letterbox(SIZE), *(geometry + pixels if is_random else []), Normalize()]
        kept = {"cache": "off"} if cache is None else {"cache": "auto", "cache_folder": cache, **self.settings}
        paths = self.data / "images" / split, self.data / "jsons" / f"{split}.json"
        return OCRDataset(*paths, DBTransforms(stages, normalize=normalize), use_stored_maps=False, **kept)

    def loader(self, dataset: Any, **settings: Any) -> Any:
        return Loader(dataset, min(BATCH, len(dataset)), WORKERS, **settings)

    def once(self, name: str, make: Any) -> Any:
        if name not in self.loaders:
            self.loaders[name] = make()
        return self.loaders[name]

    def filled(self, loader: Any) -> Any:
        self.epoch(loader)
        return loader

    def epoch(self, loader: Iterable[dict[str, Any]]) -> float:
        """One pass with every tensor copied, as to a device."""
        start = time.perf_counter()
        for batch in loader:
            for name, tensor in batch.items():
                if isinstance(tensor, torch.Tensor):
                    if name not in self.buffers or len(self.buffers[name]) < len(tensor):
                        self.buffers[name] = torch.ones_like(tensor)
                    self.buffers[name][: len(tensor)].copy_(tensor)
        return time.perf_counter() - start


def waiting_percent(batches: Iterable[object], epochs: int = 4) -> float:
    """Share of its time that a consumer waits, including the start and end of each epoch."""
    waited, begun = 0.0, time.perf_counter()
    for _ in range(epochs):
        asked = time.perf_counter()
        iterator, batch = iter(batches), None
        while True:
            following = next(iterator, None)
            waited += time.perf_counter() - asked
            if following is None:
                break
            # As in a loop, the previous batch is released here: the consumer's time, not waiting.
            batch = following
            time.sleep(STEP_SECONDS)
            asked = time.perf_counter()
        del batch
    return 100 * waited / (time.perf_counter() - begun)


def main() -> None:
    cv2.setNumThreads(1)
    checkout = Checkout(**json.loads(sys.stdin.readline()))
    for name in sys.stdin:
        print(f"\n{MARK}{getattr(checkout, name.strip())()}", flush=True)


if __name__ == "__main__":
    main()
