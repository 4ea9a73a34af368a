"""The model's part of the profile: forward, backward, boxes and scores, for a page of a real batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from omegaconf import DictConfig

from ocr.advisor.measure.stage_timing import Clock, Figures, Step, run_named
from ocr.errors import ConfigError
from ocr.pipeline.batch import Batch

MOST_CALLS = 6
MOST_SECONDS = 20.0
"""A large model on a CPU takes half a minute a batch: one call after the warm-up must do then."""
_HALVES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class Model:
    """The model of a config on a device, with the weights of its checkpoint or random ones."""

    def __init__(self, config: DictConfig, device: torch.device) -> None:
        from ocr.jobs.train import build_module, load_checkpoint

        precision = _precision(str(config.trainer.precision), device)
        module = build_module(config)
        if config.checkpoint_path:
            load_checkpoint(module, str(config.checkpoint_path))
        module.model.to(device)
        self._steps = _Steps(module, precision, bool(config.checkpoint_path))
        self._wait = torch.cuda.synchronize if device.type == "cuda" else None

    def measure(self, batches: Sequence[Batch]) -> list[Figures]:
        """Train and validate on batches that are on the device; CPU times are of all threads together."""
        self._steps.run(run_named, batches[0])
        clock, begin = Clock(time.process_time, self._wait), time.monotonic()
        for call in range(MOST_CALLS):
            self._steps.run(clock.measure, batches[call % len(batches)])
            if time.monotonic() - begin > MOST_SECONDS:
                break
        return clock.figures()


class _Steps:
    """What training and validation do with a batch."""

    def __init__(self, module: Any, precision: Callable[[], AbstractContextManager[Any]], trained: bool) -> None:
        self._module, self._precision, self._trained = module, precision, trained
        self._optimizer = module.optimizer(module.model.parameters())
        name = module.model.architecture["encoder"]
        of = "" if trained else ", of annotated maps: weights are random"
        self._forward = Step("forward", f"{name} in training, and the loss", "model", self._loss)
        self._backward = Step("backward", "gradients, and a step of the optimizer", "model", self._learn)
        self._infer = Step("inference", f"{name} in validation", "model", self._maps)
        self._boxes = Step("boxes", f"{module.boxes!r}{of}", "boxes", module.boxes.batch)
        self._scores = Step("scores", "H-mean", "scores", self._score)

    def run(self, measure: Callable[..., Any], batch: Batch) -> None:
        """One step of training, one of validation."""
        pages = len(batch["images"])
        measure(self._backward, measure(self._forward, batch, pages=pages), pages=pages)
        maps = measure(self._infer, batch, pages=pages)
        # Random weights give noise, and noise thousands of boxes that no training ever sees for long.
        maps = maps if self._trained else batch["prob_maps"]
        found = measure(self._boxes, maps, batch["inverse_matrix"], batch["shape"], pages=pages)
        measure(self._scores, batch, found, pages=pages)

    def _loss(self, batch: Batch) -> torch.Tensor:
        self._module.model.train()
        with self._precision():
            loss: torch.Tensor = self._module.loss(self._module.model(batch["images"]), batch)[0]
        return loss

    def _learn(self, loss: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _maps(self, batch: Batch) -> torch.Tensor:
        self._module.model.eval()
        with torch.inference_mode(), self._precision():
            maps: torch.Tensor = self._module.model(batch["images"], with_threshold=False).prob_map.cpu()
        return maps

    def _score(self, batch: Batch, found: Sequence[Any]) -> None:
        from ocr.training.module import truth_on_page

        for page, detections in enumerate(found):
            self._module.hmean.update(detections.polygons, truth_on_page(batch, page))


def _precision(name: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    if name in ("32-true", "32"):
        return nullcontext
    if name not in _HALVES:
        raise ConfigError(
            f"trainer.precision={name}: --model measures 32-true, {' and '.join(_HALVES)}. Set one of them"
        )
    return lambda: torch.autocast(device.type, _HALVES[name])
