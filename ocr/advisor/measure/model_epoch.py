"""Epochs of a config with its own model and loader, to compare with what was predicted."""

from __future__ import annotations

from omegaconf import DictConfig

from ocr.advisor.measure.bench_epochs import DataEpochs
from ocr.advisor.measure.model_step import ModelStep, find_device, model_threads
from ocr.advisor.measure.timed_batches import run_part


def time_model_epoch(config: DictConfig, split: str, max_seconds: float) -> float:
    """Seconds of an epoch; of a long one the first `max_seconds` are run."""
    loader = DataEpochs(config, split).loader
    with model_threads(config):
        step = ModelStep(config, find_device(config.trainer.accelerator), split == "train")
        # A pass that fills the cache; its first batch warms the model up.
        for number, batch in enumerate(loader):
            if number == 0 and batch is not None:
                step(batch)
        return run_part(loader, step, max_seconds)
