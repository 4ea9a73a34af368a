"""What consumes the batches: the configured model on its device, or a step of a given length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from omegaconf import DictConfig

from ocr.advisor.model.queueing import Consumer
from ocr.errors import ConfigError
from ocr.pipeline.batch import Batch

_HALVES = {"bf16": torch.bfloat16, "16": torch.float16}


class SleepingStep:
    """A step of the given length that leaves the CPU alone, as one on a GPU does."""

    def __init__(self, step_seconds: float) -> None:
        self.consumer = Consumer(step_seconds)

    def __call__(self, batch: Batch) -> None:
        time.sleep(self.consumer.step_seconds)


class ModelStep:
    """The model of a config with the weights of its detector file or random ones: a call is one step.

    The parts of a step (`forward`, `backward`, `infer`) take a batch on the device and can be measured one by one.
    """

    def __init__(self, config: DictConfig, device: torch.device, training: bool) -> None:
        from ocr.jobs.stored_settings import read_chosen
        from ocr.jobs.train import build_module

        self._precision = _precision(str(config.trainer.precision), device)
        self.module = build_module(config)
        stored = read_chosen(config)
        self.is_trained = stored is not None
        if stored is not None:
            stored.load_into(self.module.model)
        self.module.model.to(device)
        if config.compile_model:
            self.module.model.compile()
        self._optimizer = self.module.build_optimizer()
        self._training, self.device = training, device

    def __call__(self, batch: Batch) -> None:
        """Training: forward and backward. Validation: inference, without boxes and scores."""
        on_device = {
            name: value.to(self.device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()
        }
        if self._training:
            self.backward(self.forward(on_device))
        else:
            self.infer(on_device)
        wait_for(self.device)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch."""
        self.module.model.train()
        with self._precision():
            loss: torch.Tensor = self.module.loss(self.module.model(batch["images"]), batch)[0]
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients, and a step of the optimizer."""
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def infer(self, batch: Batch) -> torch.Tensor:
        """Probability maps on the CPU, as validation computes them."""
        self.module.model.eval()
        with torch.inference_mode(), self._precision():
            maps: torch.Tensor = self.module.model(batch["images"], with_threshold=False).prob_map.cpu()
        return maps

    @property
    def kept_bytes(self) -> int:
        """Weights, gradients, and what the optimizer keeps of each, as soon as a step has made them."""
        weights = list(self.module.model.parameters())
        state = [value for kept in self._optimizer.state.values() for value in kept.values()]
        gradients = [weight.grad for weight in weights]
        return sum(one.nbytes for one in (*weights, *gradients, *state) if isinstance(one, torch.Tensor))


def find_device(accelerator: str) -> torch.device:
    """Where the trainer of the config would put the model."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


@contextmanager
def model_threads(config: DictConfig) -> Iterator[None]:
    """As many threads of torch as `threads.model` of the config says."""
    before, wanted = torch.get_num_threads(), config.threads.model
    if wanted != "auto":
        torch.set_num_threads(int(wanted))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wait_for(device: torch.device) -> None:
    """Return when a device has done everything that was queued on it."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def _precision(name: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    bits = name.split("-")[0]
    if bits == "32":
        return nullcontext
    if bits not in _HALVES:
        raise ConfigError(
            f"trainer.precision={name} cannot be measured. Set 32-true, bf16-mixed or 16-mixed",
            setting="trainer.precision",
            value=name,
        )
    return lambda: torch.autocast(device.type, _HALVES[bits])
