"""Epochs of a config with its own model and loader, to compare with what was predicted."""

from __future__ import annotations

import torch
from omegaconf import DictConfig

from ocr.advisor.measure.bench_epochs import DataEpochs
from ocr.advisor.measure.model_step import ModelStep, find_device, model_threads
from ocr.advisor.measure.timed_batches import run_part


def time_model_epoch(config: DictConfig, split: str, max_seconds: float) -> float:
    """Seconds of an epoch; of a long one the first `max_seconds` are run."""
    loader = DataEpochs(config, split).loader
    with model_threads(config):
        step = ModelStep(config, find_device(config.trainer.accelerator), split == "train")
        # A pass that fills the cache; the first batch warms the model up, or compiles it, as do other shapes.
        seen: set[torch.Size] = set()
        for batch in loader:
            if batch is None or (seen and not config.compile_model) or batch["images"].shape in seen:
                continue
            seen.add(batch["images"].shape)
            step(batch)
        return run_part(loader, step, max_seconds)
