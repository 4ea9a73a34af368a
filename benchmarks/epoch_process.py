"""A separate process that reads epochs of a warm cache on request over a pipe: a second run, or a second rank.

Started by benchmarks/epochs.py. Each line it gets names a form and a number of workers; it opens the cache, reads the
epochs, answers with their seconds and holds on to everything until the next line.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import cv2
import torch
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console
from ocr.datasets import DBTransforms, OCRDataset
from ocr.loader import Loader
from ocr.malloc import keep_freed_memory
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox

FORMS = {"float": "host", "uint8": "device"}
"""How images leave the dataset, and the setting of `normalize` for it."""
Batch = dict[str, Any]
Runs = dict[str, list[dict[str, Any]]]
Growth = dict[str, dict[str, int]]


def give_same_chances() -> None:
    """One thread per worker, and malloc that keeps freed pages; before any worker is forked."""
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    keep_freed_memory()


def split_paths(data: Path, split: str) -> tuple[Path, Path]:
    """Images and annotation of a split."""
    return data / "images" / split, data / "jsons" / f"{split}.json"


def validation_dataset(data: Path, split: str, size: int, form: str, **settings: Any) -> OCRDataset:
    """Letterboxed pages with their maps."""
    transform = DBTransforms([Letterbox(size), Normalize()], normalize=FORMS[form])
    return OCRDataset(*split_paths(data, split), transform, use_stored_maps=False, **settings)


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
                if buffer is None or len(buffer) < len(tensor):
                    # Written once now, because the system provides memory only when it is written.
                    buffer = self._buffers[name, tensor.dtype] = torch.ones_like(tensor)
                buffer[: len(tensor)].copy_(tensor)
                copied += tensor.nbytes
        return copied


def epoch_seconds(batches: Iterable[Any], consume: Callable[[Batch], object] | None = None) -> float:
    """One pass; without a consumer, batches are only handed out."""
    start = time.perf_counter()
    for batch in batches:
        if consume is not None:
            consume(batch)
    return time.perf_counter() - start


class EpochProcess(AbstractContextManager["EpochProcess"]):
    """The other end of the pipe."""

    def __init__(self, **options: object) -> None:
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, form: str | None, workers: int) -> None:
        """Ask for epochs, or to release everything."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"form": form, "workers": workers}) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Wait for the answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process that reads the cache ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def pss_bytes(self) -> int:
        """Memory of the process; shared memory is divided by the number of processes that share it."""
        with open(f"/proc/{self._process.pid}/smaps_rollup", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def growth_bytes(pair: list[EpochProcess], readers: int, form: str, workers: int) -> int:
    """Growth of memory of the first processes while they read the same cache and the others do not."""
    ask_all(pair, None, workers)
    before = sum(process.pss_bytes() for process in pair[:readers])
    ask_all(pair[:readers], form, workers)
    return sum(process.pss_bytes() for process in pair[:readers]) - before


def ask_all(processes: list[EpochProcess], form: str | None, workers: int) -> None:
    """Ask several processes at the same time."""
    for process in processes:
        process.send(form, workers)
    for process in processes:
        process.receive()


def read_in_processes(rounds: int, workers: int, **options: object) -> tuple[Runs, Growth]:
    """What second runs report of their epochs, and by how many bytes one or two processes grow, for each form."""
    runs: Runs = {form: [] for form in FORMS}
    growth: Growth = {}
    for turn in track(range(rounds), "second runs", console=console, transient=True):
        with ExitStack() as stack:
            # Both load everything at the same time; then they read one after the other.
            pair = [stack.enter_context(EpochProcess(**options)) for _ in FORMS]
            for process in pair:
                process.receive()
            for process, form in zip(pair, FORMS, strict=True):
                process.send(form, workers)
                runs[form].append(process.receive())
            if turn == rounds - 1:
                growth = {form: memory_growth(pair, form, workers) for form in FORMS}
    return runs, growth


def memory_growth(pair: list[EpochProcess], form: str, workers: int) -> dict[str, int]:
    """Bytes by which one process grows, with and without threads, and two together."""
    ask_all(pair, form, workers)  # What malloc takes the first time does not belong to the cache.
    return {
        "one": growth_bytes(pair, 1, form, workers),
        "two": growth_bytes(pair, 2, form, workers),
        "no threads": growth_bytes(pair, 1, form, 0),
    }


def ready_transfer(form: str, batch_size: int, size: int) -> Transfer:
    """With the memory of one batch allocated, so that the first epoch does not include it."""
    page = torch.ones((batch_size, size, size, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    map_of_batch = torch.ones((batch_size, 1, size, size))
    transfer = Transfer()
    transfer({"images": page.float().contiguous() if form == "float" else page})
    transfer({"prob_maps": map_of_batch, "thresh_maps": map_of_batch})
    transfer({name: map_of_batch.bool() for name in ("prob_masks", "thresh_masks")})
    return transfer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--data", "--caches"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--split", default="val")
    for name, value in (("--size", 640), ("--batch-size", 16), ("--epochs", 6)):
        parser.add_argument(name, type=int, default=value)
    options = parser.parse_args()
    give_same_chances()
    transfers = {form: ready_transfer(form, options.batch_size, options.size) for form in FORMS}
    print("{}", flush=True)
    dataset = loader = None
    for line in sys.stdin:
        dataset = loader = None
        gc.collect()
        form, workers = json.loads(line).values()
        answer: dict[str, Any] = {}
        if form is not None:
            start = time.perf_counter()
            dataset = validation_dataset(
                options.data, options.split, options.size, form, cache="auto", cache_folder=options.caches
            )
            loader = Loader(dataset, options.batch_size, workers)
            answer["opening"] = time.perf_counter() - start
            answer["epochs"] = [epoch_seconds(loader, transfers[form]) for _ in range(options.epochs)]
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
