"""What takes the batches: the real model on its device, or a step of given length."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from omegaconf import DictConfig

from ocr.advisor.model.queueing import Consumer
from ocr.pipeline.batch import Batch

LONG_SECONDS = 5.0
MOST_PAGES_ON_CPU = 2
"""A step on a CPU takes as many times as long as it has pages; two tell."""


class SleepingStep:
    """A step on some device that leaves the CPU alone."""

    def __init__(self, step_seconds: float) -> None:
        self.consumer = Consumer(step_seconds)

    def __call__(self, batch: Batch) -> None:
        time.sleep(self.consumer.step_seconds)


class ModelStep:
    """A step of the configured model: with gradients for training, boxes left out for validation."""

    def __init__(self, config: DictConfig, device: torch.device, training: bool, precision: str | None = None) -> None:
        from ocr.jobs.train import build_module

        self._module = build_module(config)
        self._module.model.to(device).train(training)
        self._optimizer = self._module.optimizer(self._module.model.parameters())
        self._training, self._device = training, device
        self._half = "bf16" in (precision or str(config.trainer.precision))

    def __call__(self, batch: Batch) -> None:
        on_device = {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()
        }
        cast: Any = torch.autocast(self._device.type, torch.bfloat16) if self._half else nullcontext()
        if self._training:
            with cast:
                loss = self._module.loss(self._module.model(on_device["images"]), on_device)[0]
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        else:
            with torch.inference_mode(), cast:
                self._module.model(on_device["images"], with_threshold=False)
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def measure(self, batch: Batch, batch_size: int, calls: int = 2) -> Consumer:
        """Seconds of a step of `batch_size` pages, and of the CPU."""
        pages = len(batch["images"]) if self._device.type != "cpu" else min(MOST_PAGES_ON_CPU, len(batch["images"]))
        part = {name: value[:pages] for name, value in batch.items()}
        fastest = _time(lambda: self(part))
        if fastest[0] < LONG_SECONDS:  # The first call also warms up; where it takes that long, that is nothing.
            fastest = min(_time(lambda: self(part)) for _ in range(calls))
        seconds, cpu = (figure * batch_size / pages for figure in fastest)
        return Consumer(seconds, cpu)


def _time(call: Callable[[], object]) -> tuple[float, float]:
    cpu, begin = time.process_time(), time.perf_counter()
    call()
    return time.perf_counter() - begin, time.process_time() - cpu
