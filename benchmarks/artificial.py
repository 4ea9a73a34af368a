"""Pipelines with one stage that holds everything up, each in its own way."""

import hashlib
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ocr.datasets import DBTransforms, OCRDataset
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

_BYTES = memoryview(bytes(256 << 20))


@lru_cache(maxsize=1)
def _bytes_per_second() -> float:
    """How much is digested here in a second of the CPU."""
    hashlib.sha256(_BYTES)  # Memory is only handed out when it is first read.
    begin = time.thread_time()
    hashlib.sha256(_BYTES[: 32 << 20])
    return (32 << 20) / (time.thread_time() - begin)


@dataclass(frozen=True)
class Sleep(FixedStage):
    """Waits, and needs no core for it."""

    seconds: float

    def __call__(self, sample: Sample) -> Sample:
        time.sleep(self.seconds)
        return sample


@dataclass(frozen=True)
class Burn(FixedStage):
    """Computes without the interpreter's lock, for so many seconds of the CPU, about."""

    seconds: float

    def __call__(self, sample: Sample) -> Sample:
        hashlib.sha256(_BYTES[: int(self.seconds * _bytes_per_second())])
        return sample


@dataclass(frozen=True)
class HoldInterpreter(FixedStage):
    """Computes in Python, for so many seconds of the CPU."""

    seconds: float

    def __call__(self, sample: Sample) -> Sample:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            sum(range(2000))
        return sample


class SlowDisk:
    """A source whose files come one after the other."""

    def __init__(self, source: Any, seconds: float) -> None:
        self._source, self._seconds, self._lock = source, seconds, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> Sample:
        with self._lock:
            time.sleep(self._seconds)
        sample: Sample = self._source.read(index)
        return sample


def open_pages(data: Path, *stages: FixedStage, split: str = "train", disk_seconds: float = 0.0) -> OCRDataset:
    """Small pages with these stages; the disk takes so long for each."""
    dataset = OCRDataset(
        data / "images" / split,
        data / "jsons" / f"{split}.json",
        DBTransforms([Letterbox(64), *stages], normalize="device"),
    )
    if disk_seconds:
        dataset.source = SlowDisk(dataset.source, disk_seconds)  # type: ignore[assignment]
    return dataset
