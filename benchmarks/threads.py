"""Training on the CPU: time per page for threads of the model (torch), of the loader, and of OpenCV in the loader.

python benchmarks/threads.py --data DIR --model lite
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import islice, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("GLYPHFEED_CACHE", tempfile.mkdtemp(prefix="glyphfeed-threads-"))
import ocr.jobs  # noqa: F401, I001  Before torch: it sets how OpenMP's threads wait.
import cv2
import torch

from benchmarks.measure import add_data_options, data_or_synthetic, exit_with, show, take_turns
from ocr.datasets.data_module import OCRDataModule
from ocr.jobs.compose import compose_training
from ocr.jobs.train import build_module
from ocr.loader.loader import Loader
from ocr.system import usable_cores


def main() -> int:
    """One row per combination."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_options(parser, rounds=3)
    parser.add_argument("--model", default="lite", help="preset of configs/model/ (default: lite)")
    parser.add_argument("--pages", type=int, default=4, help="pages per step (default: 4)")
    parser.add_argument("--steps", type=int, default=4, help="steps per turn (default: 4)")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], help="threads of the loader")
    options = parser.parse_args()
    data = data_or_synthetic(options.data, pages=1, train=24)
    config = compose_training([f"dataset_base_path={data}", f"model={options.model}"])
    dataset, module = OCRDataModule(config).dataset("train"), build_module(config).train()
    optimizer, cores = module.build_optimizer(), usable_cores()

    def train(torch_threads: int, workers: int, cv2_threads: int) -> Callable[[], None]:
        def run() -> None:
            torch.set_num_threads(torch_threads)
            cv2.setNumThreads(cv2_threads)
            loader = Loader(dataset, options.pages, workers, shuffle=True, drop_last=True)
            loader.set_epoch(0)  # The same pages for all.
            with closing(iter(loader)) as batches:  # type: ignore[type-var]
                for batch in islice(batches, options.steps):
                    step(module, optimizer, batch)

        return run

    best = take_turns(
        {
            f"torch {torch_threads}, loader {workers}, OpenCV {cv2_threads}": train(torch_threads, workers, cv2_threads)
            for torch_threads, workers, cv2_threads in product(
                sorted({1, cores}), options.workers, sorted({1, cores}, reverse=True)
            )
        },
        options.rounds,
    )
    pages = options.pages * options.steps
    show(f"model={options.model}, {pages} pages, {cores} cores", best, pages, next(iter(best)))
    return 0


def step(module: Any, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    """Forward, backward, update."""
    batch = module.on_after_batch_transfer(batch, 0)
    loss, _ = module.loss(module.model(batch["images"]), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    exit_with(main)
