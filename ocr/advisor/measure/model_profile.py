"""The model's part of the profile: forward, backward, inference, boxes and scores, per page of a real batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ocr.advisor.measure.model_step import ModelStep, wait_for
from ocr.advisor.measure.stage_timing import Clock, StageTimes, Step, run_named
from ocr.pipeline.batch import Batch

MAX_CALLS = 6
MAX_SECONDS = 20.0
"""A large model on a CPU takes half a minute per batch: one call after the warm-up must be enough then."""


def profile_model(model: ModelStep, batches: Sequence[Batch]) -> list[StageTimes]:
    """Train and validate on batches that are on the device; CPU times are of all threads together."""
    steps = _Steps(model)
    steps.run(run_named, batches[0])
    clock, begin = Clock(time.process_time, partial(wait_for, model.device)), time.monotonic()
    for call in range(MAX_CALLS):
        steps.run(clock.measure, batches[call % len(batches)])
        if time.monotonic() - begin > MAX_SECONDS:
            break
    return clock.stage_times()


class _Steps:
    """What training and validation do with a batch, under the names that they have in the table."""

    def __init__(self, model: ModelStep) -> None:
        self._module, self._is_trained = model.module, model.is_trained
        name = self._module.model.architecture["encoder"]
        of = "" if self._is_trained else ", of annotated maps: weights are random"
        self._forward = Step("forward", f"{name} in training, and the loss", "model", model.forward)
        self._backward = Step("backward", "gradients, and a step of the optimizer", "model", model.backward)
        self._infer = Step("inference", f"{name} in validation", "model", model.infer)
        self._boxes = Step("boxes", f"{self._module.boxes!r}{of}", "boxes", self._module.boxes.batch)
        self._scores = Step("scores", "H-mean", "scores", self._score)

    def run(self, measure: Callable[..., Any], batch: Batch) -> None:
        """One step of training, one of validation."""
        pages = len(batch["images"])
        measure(self._backward, measure(self._forward, batch, pages=pages), pages=pages)
        maps = measure(self._infer, batch, pages=pages)
        # Random weights give noise, and noise gives thousands of boxes, which a trained model never does.
        maps = maps if self._is_trained else batch["prob_maps"]
        found = measure(self._boxes, maps, batch["inverse_matrix"], batch["shape"], pages=pages)
        measure(self._scores, batch, found, pages=pages)

    def _score(self, batch: Batch, found: Sequence[Any]) -> None:
        from ocr.training.module import truth_on_page

        for page, detections in enumerate(found):
            self._module.hmean.update(detections.polygons, truth_on_page(batch, page))
