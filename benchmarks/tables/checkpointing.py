"""Memory and CPU time of a training step with `model.checkpoint_gradients` and without; a process for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.harness import Data, Figure, Row, Target, benchmark, cost, fresh_process
from benchmarks.loaders import peak_bytes
from ocr.datasets.build import make
from ocr.jobs.compose import compose_training
from ocr.models.loss import MAPS

MODELS, PAGES, SIZE, STEPS = ("lite", "base", "resnet50"), 2, 640, 2
SETTINGS = ("false", "true")


@benchmark("checkpointing", table="training#checkpointing", pages=(), threads=None, rounds=2)
def checkpointing(data: Data) -> Iterator[Row]:
    """Memory that training steps add, and CPU time of a step, with gradient checkpoints and without."""
    for model in MODELS:
        memory: dict[str, list[int]] = {}
        seconds: dict[str, list[float]] = {}
        for _ in range(data.rounds):
            for setting in SETTINGS:
                with fresh_process(None) as process:
                    added, spent = process.submit(measure, model, setting).result()
                memory.setdefault(setting, []).append(added)
                seconds.setdefault(setting, []).append(spent)
        plain, saved = min(memory["false"]), min(memory["true"])
        cells = {
            "memory": Figure(plain, "B"),
            "memory with checkpoints": Target(saved / plain, " x", at_most=1, measured=Figure(saved, "B")),
            "CPU time": Figure(min(seconds["false"]), "s"),
            "CPU time with checkpoints": cost(min(seconds["true"]), of=min(seconds["false"])),
        }
        yield Row(f"model={model}", cells, f"A step of {PAGES} pages of {SIZE} x {SIZE}")


def measure(model: str, checkpoints: str) -> tuple[int, float]:
    """Bytes that training steps add to this process, and the CPU seconds of the fastest one."""
    config = compose_training([f"model={model}", f"model.checkpoint_gradients={checkpoints}"])
    detector, loss = make(config.model, "model"), make(config.loss, "loss")
    batch: dict[str, Any] = {name: (torch.rand(PAGES, 1, SIZE, SIZE) > 0.9).float() for name in MAPS}
    images, seconds, before = torch.randn(PAGES, 3, SIZE, SIZE), [], peak_bytes()
    for _ in range(STEPS):
        begin = time.process_time()
        loss(detector(images), batch)[0].backward()
        detector.zero_grad()
        seconds.append(time.process_time() - begin)
    return peak_bytes() - before, min(seconds)
